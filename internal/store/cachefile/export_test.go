// SPDX-License-Identifier: Apache-2.0

package cachefile

// WaitSwept waits until the files were compared with the index.
func WaitSwept(s *Store) { <-s.swept }
