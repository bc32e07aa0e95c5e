// SPDX-License-Identifier: Apache-2.0

// Package disk is an object store in a directory: content in plain files, metadata and small objects in Pebble.
//
// Other packages hold its parts: layout (the directory), record (keys and values), metadb (how Pebble is opened), fence
// (how Pebble survives a failing disk), witness (the proof that its log is whole), check and quarantine (repair),
// backup. This package opens a store and serves it.
//
// # Changes
//
// Content is written and synced before any lock is taken. Then, under the key's lock, the condition is judged and one
// batch committed: the records, and the removal list for what they replace. That is the commit point. The sync of
// Pebble's log is shared by all who commit at the same time. A reader of a key waits for a change of it that is not
// durable yet; listings do not. Files on the removal list are removed afterwards, in the background.
//
// # Files in the hands of clients
//
// Handle gives out open descriptions of a version's file. The file is held: if the version goes, the file waits on the
// removal list until the client lets go of it. The file keeps the name it was opened with even while it settles.
// Content that lies with the metadata is written to tmp/ for that.
//
// NewDraft makes a file in tmp/ that a client writes. Commit asks the kernel, by a read lease, whether anybody can
// still write to it, and then goes the way of Put. A file in tmp/ that no record knows was never acknowledged: a crash
// ends drafts.
//
// # When the disk fails
//
// If the log of the metadata finds no space, it waits for space, and the store refuses changes meanwhile. If it fails
// otherwise, the store refuses changes until it is opened again, and goes on reading. A change that was under way at
// that moment returns an error which says that its outcome is not known. See package fence.
//
// A store whose disk is full or read-only when it is opened is opened for reading; see readonly.go. The tender makes it
// writable again when that is possible. It also has the space of deleted records given back; see sweeper.
package disk
