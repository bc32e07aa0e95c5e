// SPDX-License-Identifier: Apache-2.0

// Package disk implements the object store on a local file system. Content is kept in plain files; metadata and small
// objects are kept in Pebble.
//
// Package disk opens a store and serves its requests. The packages under internal/store that do parts of the work of
// package disk are:
//
//	layout      the files and directories of a store
//	record      keys and values of the metadata
//	metadb      opening and reading Pebble
//	datafile    the files that hold content
//	fence       surviving a failing disk
//	witness     the proof that the end of Pebble's log is not lost
//	check       verification and repair
//	quarantine  files and records that a repair set aside
//	backup      backup and restore
//
// # Changes
//
// A write stores and syncs the content before it takes any lock. Under the lock of its key, a write checks its
// condition and commits one batch of metadata changes. The batch of a write contains the new records, and puts the
// files of replaced versions on the removal list. A write takes effect when its batch is committed. Concurrent commits
// share one sync of Pebble's log. A reader of a key waits until a pending change of that key is durable; listings do
// not wait. Files on the removal list are removed in the background.
//
// # Files that clients have open
//
// Handle gives a client open descriptors of a version's file, and keeps the file from being removed. If the version is
// deleted, a file that a client has open stays on the removal list until the client closes its handle. A file that a
// client has open keeps the name under which it was opened, even while the file is moved from tmp/ to data/. Inline
// content (content that is stored in the metadata) is written to a file in tmp/ before a client gets descriptors of it.
//
// NewDraft creates a file in tmp/ for a client to write. The commit of a draft asks the kernel, by a read lease,
// whether anybody can still write to the file, and then continues as Put does. A file in tmp/ without a record was
// never acknowledged, so a crash discards all drafts.
//
// # When the disk fails
//
// If the disk has no space for the metadata's log, the log waits for space and the store refuses changes meanwhile. If
// the metadata's log fails for another reason than space, the store only serves reads until it is opened again. A
// change in progress when the log fails returns an error, and its outcome is unknown. The comment of package fence
// describes how the store handles disk failures.
//
// If the disk is full or read-only when a store is opened, the store is opened for reading (readonly.go). The tender is
// a background task that makes the store writable again as soon as the disk accepts changes. The tender also compacts
// Pebble to return the space of deleted records (sweep.go).
package disk
