// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"os"
)

// What follows is for doors that hand out files instead of bytes: the client
// reads and writes them itself, and the store's processor touches none.

// Handles is a store whose content can be handed out as files.
type Handles interface {
	// Handle opens the content of an object to be handed out; the errors are
	// Open's. The caller closes it when the last client has let go.
	Handle(ctx context.Context, ref Ref) (Handle, error)
	// NewDraft begins an object whose bytes a client will write. Kind Unsupported
	// where the file system under the store cannot tell whether a writer is left
	// (overlayfs, for one), with the reason; ErrNoSuchBucket, ErrNoSpace.
	NewDraft(ctx context.Context, d Draft) (Drafting, error)
}

// Handle is the content of one version, handed out. While it is open, the
// version's file keeps its bytes and its name, whatever happens to the key: its space counts
// as held. Its methods may be called from many goroutines at once.
type Handle interface {
	// Info describes the version.
	Info() Info
	// Inline returns the content where it lies with the metadata, verified, and false where it lies in a file.
	Inline() ([]byte, bool)
	// Sums returns the CRC-64/NVME of the blocks from first on, at most n, in
	// order; block i holds the bytes from i*SumBlock on. They may be shared and must not be changed.
	Sums(first, n int64) ([]uint64, error)
	// Open makes a fresh, read-only description of the file, of nobody else, past
	// the page cache with direct: its flags are the receiver's to change. Content that is
	// inline is spilled to a file first, which lives as long as the handle. Kind
	// Unsupported where the file system has no way past the page cache. The caller closes it.
	Open(direct bool) (*os.File, error)
	// Path is the file's name now, for messages; empty while the content is inline.
	Path() string
	// Close lets go. A second call does nothing.
	Close() error
}

// SumBlock is how many bytes have a sum of their own; the last block may be shorter.
const SumBlock = 1 << 20

// Draft is a request to write an object through descriptions of its file.
type Draft struct {
	Bucket, Key string
	// Size is how many bytes the object will have at most. So much is reserved.
	Size int64
	// Attributes of the new version; the store keeps no reference.
	Attributes map[string]string
	// Condition is judged when the draft is committed.
	Condition Condition
	// Judge, where given, decides on the change when the draft is committed.
	Judge Judge
}

// Drafting is an object that a client writes. Nothing of it is visible before
// Commit; a crash, or Abort, leaves no trace. Reserved, Abort and Remains may be called from any goroutine, the others from one at a time.
type Drafting interface {
	// Open makes a fresh write-only description of the file, which has a name
	// (cuFile refuses files without one), past the page cache with direct. It is handed to the client and the
	// caller closes its own.
	Open(direct bool) (*os.File, error)
	// Reserved is how many bytes of the disk it takes now: clients can write beyond what was announced.
	Reserved() int64
	// Path is the file's name, for messages.
	Path() string
	// Commit publishes the first d.Size bytes of the file: durable and visible
	// when it returns nil. It is refused, with the draft as it was, while any
	// description, duplicate, descriptor in flight or shared mapping of the file
	// can still write (ErrWriterLeft); where the file is shorter than Size, where the sums are
	// not those of d.CRC64 or of another number than Size asks for (ErrInvalidSums). Any
	// other error ends the draft without a trace.
	Commit(ctx context.Context, d Sealed) (Info, error)
	// Abort removes the file. It can be called at any time, more than once, and does nothing after a successful Commit.
	Abort() error
	// Remains reports, after Abort, whether somebody can still write to the removed file, and frees what was written meanwhile.
	// The caller asks again until it is false: nothing else bounds what such a file takes of the disk.
	Remains() bool
}

// Sealed is what a client says of the content it has written. The store does
// not read it: scrubbing and every reader compare it with these sums.
type Sealed struct {
	Size  int64
	CRC64 uint64   // of the whole content
	Sums  []uint64 // of its blocks of SumBlock bytes
}

// Action is what a request wants of an object or a bucket.
type Action string

// The actions that doors ask for, by the names that policies know them by.
const (
	ActionGet        Action = "s3:GetObject"
	ActionGetVersion Action = "s3:GetObjectVersion"
	ActionPut        Action = "s3:PutObject"
	ActionList       Action = "s3:ListBucket"
)

// Access is a request as policies see it.
type Access struct {
	Account string // access key, already proved
	Action  Action
	Bucket  string
	Key     string // with ActionList: the prefix that is listed, for policies that speak of it
	Version string
	// Delimiter and Limit, with ActionList, are those of the listing, for policies that speak of them; 0 and empty where none was asked for.
	Delimiter string
	Limit     int
}

// Description is what a client says of a new object.
type Description struct {
	ContentType string
	// Metadata are the user's own names and values (x-amz-meta-…, without the prefix).
	Metadata map[string]string
}

// Authorizer judges what comes through other doors by the rules of the front
// end: roles, bucket owner, ACL, policy. The front end implements it.
type Authorizer interface {
	// Authorize returns nil, or an error of kind Permission that says what is not
	// allowed; ErrNoSuchBucket for a bucket that does not exist.
	Authorize(ctx context.Context, a Access) error
	// Describe makes the attributes of an object that is written through a door, as a PUT
	// with that description would have them. Kind Invalid for a description that S3 would refuse.
	Describe(ctx context.Context, bucket string, d Description) (map[string]string, error)
	// JudgeWrite returns the Judge of every write through a door: it keeps locked versions
	// from being replaced, and adds the bucket's default retention.
	JudgeWrite() Judge
}
