// SPDX-License-Identifier: Apache-2.0

// Package checkpoint commits, lists, verifies and prunes checkpoints of training state in directories and in buckets.
//
// A checkpoint is a directory, or a prefix of a bucket, with these files:
//
//	__<rank>_<n>_<id>.distcp          data files, written by the ranks, each with its checksums in FILE.crc64nvme
//	checkpoint-<id>.nebulaio.json     the manifest: names, sizes and checksums of all files, and where each tensor is;
//	                                  with its own checksums beside it
//	.metadata                         the metadata of PyTorch, a pickle
//
// The id has 16 hex digits and is new for each save. So a save never writes to a file of an older checkpoint in the
// same directory. A save makes each step durable before the next:
//
//	1  the ranks write the data files                  the old checkpoint, if any, is complete
//	2  Commit writes the manifest                      the old checkpoint is complete
//	3  Commit puts .metadata in place by a rename      the new checkpoint is complete
//	4  Commit removes what belongs to older saves      the new checkpoint is complete
//
// Step 3 is the commit point. The manifest has the checksum of its .metadata, so that a manifest and the .metadata of
// different saves never count as a checkpoint. A removal goes the other way: .metadata first, made durable, and then
// the rest. So a save or a removal that is killed after any step leaves a complete checkpoint, or files that are not
// listed as one.
package checkpoint
