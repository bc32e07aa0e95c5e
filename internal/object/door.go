// SPDX-License-Identifier: Apache-2.0

package object

import (
	"context"
	"fmt"
	"os"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// This file is for doors, which hand out files instead of bytes. A client reads and writes the files itself, so that
// the server's CPU never touches the bytes.

// Handles is a store that can hand out the content of objects as open files.
type Handles interface {
	// Handle opens the content of an object in order to hand it out to a client. Handle fails with the same errors as
	// Objects.Open. The caller of Handle closes the handle when no client uses the content any more.
	Handle(ctx context.Context, ref Ref) (Handle, error)
	// NewDraft begins a draft: a new object that a client will write through an open file. NewDraft fails with
	// ErrNoSuchBucket if the bucket does not exist, and with ErrNoSpace if the disk is full. NewDraft fails with kind
	// Unsupported if the file system of the store cannot tell whether a file still has writers, as with overlayfs.
	NewDraft(ctx context.Context, d Draft) (Drafting, error)
}

// Handle is the content of one object version that is handed out to a client. While the handle is open, the
// version's file keeps its bytes and its name, even if the object is deleted. The store's statistics count the file
// of a deleted object as held until the handle is closed. All methods of Handle are safe for concurrent use.
type Handle interface {
	// Info describes the object version.
	Info() Info
	// If the content is stored with the metadata, Inline compares the content with its checksum and returns it. If
	// the content is stored in a file, Inline returns false.
	Inline() ([]byte, bool)
	// Sums returns the CRC-64/NVME checksums of at most n blocks; the parameter first is the number of the first block.
	// Block i begins at byte i*SumBlock. The returned slice may be shared and must not be changed.
	Sums(first, n int64) ([]uint64, error)
	// Open opens the content's file for reading, with O_DIRECT if direct is true. Each call of Open returns a file with
	// an open file description of its own, so that a client may change its flags. Content that is stored with the
	// metadata is first copied to a file that lives as long as the handle. Open fails with kind Unsupported if direct
	// is true and the file system has no O_DIRECT. The caller of Open must close the returned file.
	Open(direct bool) (*os.File, error)
	// Path returns the current path of the content's file, for use in messages. Path is empty while the content is
	// stored only with the metadata.
	Path() string
	// Close closes the handle. A second call of Close does nothing.
	Close() error
}

// SumBlock is the size in bytes of a block that has its own checksum. The last block of an object may be shorter than
// SumBlock.
const SumBlock = 1 << 20

// Draft is a request to let a client write an object through an open file.
type Draft struct {
	Bucket, Key string
	// Size is the largest size that the object may have, in bytes. The store reserves Size bytes on the disk.
	Size int64
	// Attributes are the attributes of the new version. The store keeps no reference to the map Attributes.
	Attributes map[string]string
	// Condition is checked when the draft is committed.
	Condition Condition
	// Judge, if not nil, decides whether the draft may be committed.
	Judge Judge
	// Grows makes the draft a file that its client reads and writes, and that Drafting.Grow enlarges. The store reserves
	// no disk space for a draft that grows.
	Grows bool
	// From, if not nil, is an open handle of the store, and Grows must be set. The draft begins as a private copy of the
	// content of From. NewDraft copies the content before it returns, and does not compare it with its checksums. If the
	// file system allows it, the two files share their blocks, so that the copy takes no time and no space.
	From Handle
}

// Check returns an error of kind Invalid if the draft is impossible. A size must not be negative. A draft with a source
// must grow, and its size must not be less than that of the source.
func (d *Draft) Check(op string) error {
	switch {
	case d.Size < 0:
		return errs.New(errs.Invalid, op, d.Key, fmt.Sprintf("size %d, expected 0 or more", d.Size))
	case d.From == nil:
		return nil
	case !d.Grows:
		return errs.New(errs.Invalid, op, d.Key, "the draft has a source and does not grow; expected one that grows")
	case d.From.Info().Size > d.Size:
		return errs.New(errs.Invalid, op, d.Key,
			fmt.Sprintf("size %d, expected at least the %d bytes of the source", d.Size, d.From.Info().Size))
	}
	return nil
}

// Drafting is a draft: an object that a client is writing. No other client sees the draft before Commit, and nothing of
// the draft remains after a crash or Abort. The methods Reserved, Abort and Remains are safe for concurrent use. Only
// one goroutine at a time may call the other methods of Drafting.
type Drafting interface {
	// Open opens the draft's file for writing only, with O_DIRECT if direct is true. If the draft grows, the file is open
	// for reading too. The draft's file has a name,
	// because cuFile refuses files without a name. The caller of Open sends the file's descriptor to the client, and
	// then closes the file.
	Open(direct bool) (*os.File, error)
	// Reserved returns the number of bytes that the draft occupies on the disk now. The result of Reserved can exceed
	// Draft.Size, because a client can write more than it announced.
	Reserved() int64
	// Path returns the path of the draft's file, for use in messages.
	Path() string
	// Copied returns the number of bytes that were copied from Draft.From. Copied returns 0 if the draft shares the blocks
	// of its source, or has none.
	Copied() int64
	// Grow raises the largest size that the object may have, in bytes. A smaller size changes nothing. Grow fails with
	// ErrNoSpace if the disk has no room for the larger size, and the draft stays as it was.
	Grow(ctx context.Context, size int64) error
	// Commit publishes the first d.Size bytes of the draft's file as the object. When Commit returns nil, the
	// object is durable and visible.
	//
	// Commit fails with ErrWriterLeft while a client can still write to the file: by an open descriptor, a descriptor
	// in transit on a socket, or a shared mapping. Commit fails with ErrInvalidSums if the file is shorter than d.Size,
	// if d.Sums do not combine to d.CRC64, or if the number of d.Sums is wrong. If Commit fails with ErrWriterLeft or
	// ErrInvalidSums, the draft stays unchanged. If Commit fails with an error other than ErrWriterLeft and
	// ErrInvalidSums, the draft ends and its file is removed.
	Commit(ctx context.Context, d Sealed) (Info, error)
	// Abort removes the draft's file. Abort may be called at any time and more than once. After a successful
	// Commit, Abort does nothing.
	Abort() error
	// Remains reports, after Abort, whether a client can still write to the removed file. Each call of Remains frees
	// the disk space that clients have written to the removed file. The caller must call Remains repeatedly until it
	// returns false; otherwise a client could fill the disk through the removed file.
	Remains() bool
}

// Sealed describes the content that a client has written to a draft. Drafting.Commit does not read the content that
// Sealed describes. Scrubs and readers compare the content with the checksums of Sealed later.
type Sealed struct {
	Size  int64
	CRC64 uint64   // CRC-64/NVME of the whole content
	Sums  []uint64 // CRC-64/NVME of each block of SumBlock bytes
}

// Action is the S3 action of a request, named as in bucket policies: for example, "s3:GetObject".
type Action string

// Clients of the door can request the actions ActionGet, ActionGetVersion, ActionPut and ActionList. Sessions of
// directory buckets need ActionDelete too.
const (
	ActionGet        Action = "s3:GetObject"
	ActionGetVersion Action = "s3:GetObjectVersion"
	ActionPut        Action = "s3:PutObject"
	ActionList       Action = "s3:ListBucket"
	ActionDelete     Action = "s3:DeleteObject"
)

// Access holds the properties of a request that decide whether the request is allowed.
type Access struct {
	Account string // access key of the account; the client has already proved that it has the secret key
	Action  Action
	Bucket  string
	Key     string // key of the object; for ActionList, the prefix of the listing
	Version string
	// Delimiter and Limit are the delimiter and the page size of a listing, for policies with conditions on the
	// delimiter or the page size. If the listing has no delimiter or limit, or the request is no listing, Delimiter
	// is empty and Limit is 0.
	Delimiter string
	Limit     int
}

// Description holds the content type and the metadata that a client gives to a new object.
type Description struct {
	ContentType string
	// Metadata is the user metadata of the object: the x-amz-meta- headers, by name without the prefix.
	Metadata map[string]string
}

// Authorizer decides whether requests at the door are allowed, by the rules of S3: role, bucket owner, ACL and
// policy. The S3 front end implements Authorizer.
type Authorizer interface {
	// Authorize returns nil if the request is allowed. If the request is not allowed, Authorize returns an error of
	// kind Permission that names the refused action. If the bucket does not exist, Authorize returns
	// ErrNoSuchBucket.
	Authorize(ctx context.Context, a Access) error
	// Describe returns the attributes of an object that is written through the door. An S3 PUT with the same
	// content type and metadata would give the object the same attributes. Describe fails with kind Invalid if S3
	// would refuse the description.
	Describe(ctx context.Context, bucket string, d Description) (map[string]string, error)
	// JudgeWrite returns the Judge for writes through the door. The Judge for door writes refuses to replace a locked
	// version, and adds the bucket's default retention to the new version.
	JudgeWrite() Judge
}
