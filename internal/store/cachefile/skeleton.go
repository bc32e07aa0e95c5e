// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"context"
	"iter"
	"os"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Store is a cache in a directory.
type Store struct{}

// Open opens the cache in o.Dir, and creates the directory if it is missing. Open reads the index of the entries and
// does not look at the files. If the database is damaged, Open tells Options.Failed, removes all entries and begins anew.
func Open(ctx context.Context, o Options) (*Store, error) { panic("soon") }

// Close makes all present blocks durable and closes the cache. Entries that are still open stay readable.
func (s *Store) Close() error { panic("soon") }

// Lookup returns the entry of id, and notes that a client reads n bytes of id, whether there is an entry or not. Call
// Lookup once for each read, before Admit: the access clock of the Guard counts these bytes. The caller releases the
// entry. The second result is false if there is no entry; some blocks of an entry may be absent (see Entry.Missing).
func (s *Store) Lookup(id object.Identity, n int64) (*Entry, bool) { panic("soon") }

// Peek returns the entry of id like Lookup, but notes no read.
func (s *Store) Peek(id object.Identity) (*Entry, bool) { panic("soon") }

// Admit returns the entry of id, and makes an empty one if there is none. The second result is false if the content
// should be served without being kept: it is larger than the cache may be, or there is no room and the Guard lets
// nothing be evicted. The caller releases the entry. Admit fails if id is invalid or the database cannot be written.
func (s *Store) Admit(ctx context.Context, id object.Identity) (*Entry, bool, error) { panic("soon") }

// Remember records what another server said about a key. Entries of the key with another identity become superseded.
// A crash may lose the last records.
func (s *Store) Remember(origin, key string, k Known) error { panic("soon") }

// Known returns what Remember recorded last, or false if that is unknown or was forgotten.
func (s *Store) Known(origin, key string) (Known, bool) { panic("soon") }

// Forget removes the record that Remember made.
func (s *Store) Forget(origin, key string) error { panic("soon") }

// List returns the selected entries in the order of origin and key. The error is that of ctx.
func (s *Store) List(ctx context.Context, m Match) iter.Seq2[Info, error] { panic("soon") }

// Stat describes the entry of id.
func (s *Store) Stat(id object.Identity) (Info, bool) { panic("soon") }

// Verify reads every present block of the selected entries, drops blocks that do not match their checksums, and
// returns what it found. Verify calls progress, which may be nil, after each entry and each 64 MiB.
func (s *Store) Verify(ctx context.Context, m Match, progress func(Progress)) (Report, error) { panic("soon") }

// Pin adds or replaces a pin durably.
func (s *Store) Pin(ctx context.Context, p Pin) error { panic("soon") }

// Unpin removes a pin durably, and reports whether there was one.
func (s *Store) Unpin(ctx context.Context, origin, key string, prefix bool) (bool, error) { panic("soon") }

// Pins returns all pins that have not expired, sorted by origin and key.
func (s *Store) Pins() []Pin { panic("soon") }

// Evict removes the selected entries, except pinned ones.
func (s *Store) Evict(ctx context.Context, m Match) (Evicted, error) { panic("soon") }

// Stats returns the current numbers.
func (s *Store) Stats() Stats { panic("soon") }

// Flush makes all blocks durable that are present now.
func (s *Store) Flush(ctx context.Context) error { panic("soon") }

// Entry is one user's hold on an entry of the cache. While an Entry is held, its content stays readable and its file
// keeps its name, even if the entry is evicted. Each Entry from Lookup, Peek or Admit must be released.
type Entry struct{}

// Identity returns the identity of the content.
func (e *Entry) Identity() object.Identity { panic("soon") }

// Missing returns the absent parts of r, in ascending order. Each part has whole blocks, so it may be larger than r.
// Neighbouring blocks are one part. Missing ignores the part of r that is outside the content.
func (e *Entry) Missing(r object.Range) []object.Range { panic("soon") }

// Put stores one whole block: object.SumBlock bytes, or what remains for the last block. The block is readable at once,
// and durable after the next flush. If the block is present already, Put compares the sums: it fails with kind Corrupt
// if data differs, and does nothing otherwise. If the disk or the cache is full, Put fails with object.ErrNoSpace, and
// the entry keeps what it has. Put keeps no reference to data.
func (e *Entry) Put(ctx context.Context, block int64, data []byte) error { panic("soon") }

// Section returns a reader of the range r. Section fails with object.ErrInvalidRange if r is outside the content, and
// with ErrAbsent if a block of r is absent. The Body ends with an error that wraps object.ErrDamaged before any byte of
// a damaged block; the block is then absent. The Body also implements object.Verifier. The Body holds the content by
// itself: it may outlive the Entry. The caller closes the Body.
func (e *Entry) Section(r object.Range) (object.Body, error) { panic("soon") }

// Sums returns the CRC-64/NVME checksums of n blocks from block `first` on. Sums fails with ErrAbsent if one of them is
// absent. At the end of the content, Sums returns fewer than n.
func (e *Entry) Sums(first, n int64) ([]uint64, error) { panic("soon") }

// Open opens the content's file for reading, with O_DIRECT if direct is true. The content must be whole. Inline content
// is first copied to a file that lives as long as anybody holds the entry. The caller closes the file, and holds the
// Entry as long as the file's name is needed. Open fails with kind Unsupported if the file system has no descriptors
// or no O_DIRECT. Open compares no checksums.
func (e *Entry) Open(direct bool) (*os.File, error) { panic("soon") }

// Inline returns the content if it is whole and stored in the database. The caller must not change it.
func (e *Entry) Inline() ([]byte, bool) { panic("soon") }

// Path returns the path of the content's file, for messages; it is empty if the content is inline.
func (e *Entry) Path() string { panic("soon") }

// Whole reports whether all blocks are present.
func (e *Entry) Whole() bool { panic("soon") }

// Proven records how the whole content was verified, such as "crc64nvme". The record is written with the next flush. If
// a block is dropped as damaged, the proof stays: the block must match its checksum when it is fetched again.
func (e *Entry) Proven(how string) { panic("soon") }

// Proof returns what Proven recorded last, or "".
func (e *Entry) Proof() string { panic("soon") }

// Foreign records whether another node of the cluster owns the content, so that it is evicted before content of ours.
func (e *Entry) Foreign(is bool) { panic("soon") }

// Flush makes all blocks of the entry durable that are present now.
func (e *Entry) Flush(ctx context.Context) error { panic("soon") }

// Drop evicts the entry, even if it is pinned: for example, because its content has proved to be wrong. The Entry stays
// readable until it is released, but Put fails with ErrAbsent.
func (e *Entry) Drop() error { panic("soon") }

// Release ends the hold. Further calls of Release do nothing.
func (e *Entry) Release() { panic("soon") }
