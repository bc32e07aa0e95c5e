// SPDX-License-Identifier: Apache-2.0

package disk

// ID is the store's identity: made with it, and the same for as long as it exists.
func (s *Store) ID() string { return s.uuid }
