// SPDX-License-Identifier: Apache-2.0

// Package disk is an object store in a directory: content in plain files, metadata and small objects in Pebble.
//
// # Layout
//
//	FORMAT        what this directory is: format version, UUID, and that there is a witness
//	EPOCH         how often the store was opened, and where the last clean close was
//	REACH.0, .1   the witness: how far the log and the manifest of the metadata were durable, see reach
//	LOCK, OWNER   one process owns a store; OWNER says which
//	BALLAST       16 MiB that are given up when the disk is full
//	meta/         Pebble
//	data/, tmp/   files of content, see package datafile
//	PARTIAL       a restore or a salvage fills this directory; see beginPartial
//	quarantine/   what repair moved aside: files with a note each, and records as they were
//
// All of them are the owner's alone: directories have mode 0700, files in the root and in meta/ 0600.
//
// # Keys
//
// A key of the metadata begins with a letter. Numbers are big-endian: bucket,
// file and sequence have 8 bytes. A name that something follows is escaped
// (0x00 becomes 0x00 0xff) and ended by 0x00 0x01, so that the order of keys
// is the order of the names' bytes. Every value begins with a version byte, 1,
// except numbers, which are 8 bytes.
//
//	b name                       a bucket: number, settings
//	o bucket name                the current version of a key, unless that is a delete marker
//	v bucket name/ ^sequence     a noncurrent version, or a delete marker; newest first
//	n bucket name                the sequence of the key's null version, where that is under v
//	d sequence                   content of a version that is kept here
//	q sequence                   the parts that a version was completed of
//	c file chunk4                sums of a file, 8192 each, where they are more than 8
//	f file                       whose a file is: of a version, an upload, a part
//	g file                       a file that nobody has any more and that is to be removed
//	u bucket name/ id16          an upload
//	p upload number2             a part
//	r kind/ name                 a record of others
//	s bucket                     what the bucket holds, a sum that batches add to
//	m name                       uuid, epoch, closed, and the marks: files, sequences, buckets
//
// A version has one record and no copy of it. Its sequence is given out in
// ascending order under the lock of its key, is never used twice, and is
// hidden in the identifier that clients see, so that a version is found by a point read.
//
// # Invariants
//
// They are what Check proves.
//
//	I1  Under one key all sequences differ; that under o is above those under v.
//	I2  Where a key has no o but has v, the newest v is a delete marker.
//	I3  n exists exactly where a null version is under v, and names it; a key has at most one null version.
//	I4  A version with content has exactly one of: d of its size, a file of at least its size with f naming the version and all sums.
//	I5  Every f, d, q, c and p belongs to something that names it.
//	I6  Every file in data/ has f, or g, or is the file of an upload; a file on g has no f.
//	I7  The marks are above all numbers in use.
//	I8  s is what counting gives.
//
// # Repair
//
// Repair never deletes. What follows from other records (f, n, s, the marks) or from the notes in the root (uuid, epoch, closed) is
// put right. A bucket (b) that cannot be read is rebuilt from the keys of its objects. What belongs to nothing (d, q, c, f, p,
// files) is moved to quarantine/, but only when everything that can own something is whole. A record that cannot be read, an
// object whose file is missing or a bucket that is gone may be the owner of whatever seems to have none. So repair looks
// twice: the first look finds what it cannot put right, the second one changes. Records are durable in quarantine/ before
// they are changed, a file's note before the file moves; both can be put back by Restore. A removal list that names a file
// with an owner is wrong about it, at Open as well.
//
// # Changes
//
// Content is written and synced before any lock is taken. Then, under the
// key's lock, the condition is judged and one batch committed: the records,
// and the removal list for what they replace. That is the commit point. The
// sync of Pebble's log is shared by all who commit at the same time. Who reads
// a key waits for a change of it that is not durable yet; listings do not.
// Files on the removal list are removed afterwards, behind the scenes.
//
// # Files in the hands of clients
//
// Handle gives out open descriptions of a version's file. The file is held: where the version goes, the file waits on the removal list until it
// is let go of, and it keeps the name it was opened with even while it settles. Content that lies here is written to tmp/ for that.
// NewDraft makes a file in tmp/ that a client writes; Commit asks the kernel, by a read lease, whether
// anybody can still write to it, and then goes the way of Put. What is in tmp/ and no record knows was never acknowledged: a crash ends drafts.
//
// # When the disk fails
//
// See fence. Where the log of the metadata finds no space it waits for space,
// and the store refuses changes meanwhile. Where it fails otherwise, the store
// refuses changes until it is opened again, and goes on reading. A change
// that was under way at that moment returns an error that says that its outcome is not known.
//
// A store whose disk is full or read-only when it is opened is opened for reading; see readonly.go. The tender makes it
// writable again when that is possible. It also has the space of deleted records given back; see sweeper.
package disk
