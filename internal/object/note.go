// SPDX-License-Identifier: Apache-2.0

package object

import "context"

// Note is a record that a store writes in the same durable step as a change. If the change is made, the record is
// written; if the change fails, the record is not written.
type Note struct {
	Kind, Name string
	Value      []byte
}

// Noter makes changes together with a record about them. A background task keeps its progress in such a record. After a
// crash, the record tells exactly which changes were made.
type Noter interface {
	// DeleteNoted deletes objects as Objects.DeleteMany does, in one durable step. The keys of the deletions must differ,
	// and there must be at most 1,000 of them. DeleteNoted calls note once with the results before the deletions are
	// durable, and writes the returned record with them. If the step fails, all results are errors. The function note must
	// not call the store.
	DeleteNoted(ctx context.Context, bucket string, ds []Deletion, note func([]Deleted, []error) Note) ([]Deleted, []error)
	// AbortNoted aborts a multipart upload as Uploads.AbortUpload does, and writes the record note in the same step.
	AbortNoted(ctx context.Context, bucket, key, id string, note Note) error
}
