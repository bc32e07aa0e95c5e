// SPDX-License-Identifier: Apache-2.0

package s3

// Whole returns the checksum that the server keeps, if the server says that it is one of the whole content
// (FULL_OBJECT): "crc64nvme", "crc32c" or "crc32", and its value. Otherwise the algorithm is empty. Unlike Kept, Whole
// does not rely on a checksum of an unnamed type, which some servers send for a checksum of the parts' checksums.
func (i Info) Whole() (algorithm string, sum uint64) {
	if !i.full {
		return "", 0
	}
	return i.kept.algorithm, i.kept.sum
}
