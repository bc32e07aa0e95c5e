// SPDX-License-Identifier: Apache-2.0

// Package cachefile keeps cached content of objects of other S3 servers on a local disk.
//
// The content of one object version is one entry. An entry has blocks of object.SumBlock bytes, and each block is
// present or absent. A present block has a CRC-64/NVME checksum. Any set of blocks may be present.
//
// The directory of a cache has a Pebble database, meta/, and one sparse file for each entry, data/xxx/<number>. Small
// content is stored in the database. A file gets its full length at once, but only present blocks occupy space. The
// numbers of files are never reused.
//
// The database names a block only after the data of the block is synced. A flusher does both in batches. After a kill
// or a loss of power, each block of the cache is right or absent. If a file is missing or has another length than its
// record says, its entry is absent. Files without a record are removed in the background.
//
// Reads compare each block with its checksum once while its file stays open, and send bytes by sendfile. A block that
// does not match is dropped durably before any byte of it is returned.
//
// A Guard decides which entries may be evicted. Entries are evicted as a whole.
//
// All methods of this package are safe for concurrent use unless their comment says otherwise.
package cachefile
