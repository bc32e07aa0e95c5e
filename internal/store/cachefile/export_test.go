// SPDX-License-Identifier: Apache-2.0

package cachefile

// WaitSwept waits until an opened store has removed the files that its index does not name.
func WaitSwept(s *Store) { <-s.swept }
