// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	// UnpackStateName is the name of the file that describes what was unpacked to a folder.
	UnpackStateName = hidden + "unpack.json"
	// unitPrefix begins the names of the records of finished units, which are removed at the end.
	unitPrefix = hidden + "unit-"
	// unitSize is the number of bytes that are unpacked between two records.
	unitSize = 64 << 20
	// spanSize is the number of bytes that are read at once.
	spanSize = 4 << 20
)

// Opened is an open file of a pack.
type Opened interface {
	io.ReaderAt
	io.Closer
}

// Packed is a pack to unpack.
type Packed struct {
	Set *dataset.Set
	// Open opens a file by the name that its table has. The caller closes the file, and uses it on one goroutine.
	Open func(ctx context.Context, name string) (Opened, error)
	// Sums returns the checksums of a file, or nil if there are none. If Sums is nil, no file has checksums.
	Sums func(ctx context.Context, name string) (*checksum.Sums, error)
	// Header, if not nil, returns what is written before the parts of a file of the set, so that each part of n bytes is
	// a .npy array. Arrays have the extension "npy".
	Header func(file int, n int64) ([]byte, error)
}

// UnpackOptions choose what Unpack does.
type UnpackOptions struct {
	NoVerify bool // do not compare the pack with its checksums
	// Progress receives the number of bytes of samples that are unpacked, and the total. Calls do not overlap.
	Progress func(done, total int64)
}

// Unpacked says what Unpack did.
type Unpacked struct {
	Samples     int64 `json:"samples"`
	Files       int64 `json:"files"`
	Bytes       int64 `json:"bytes"`
	Verified    int   `json:"verified_files"` // number of files of the pack that were compared with checksums
	Resumed     int   `json:"resumed_units"`  // number of pieces that an earlier run had finished
	WasComplete bool  `json:"was_complete"`
}

// unpackState describes what is unpacked.
type unpackState struct {
	Version     int       `json:"version"`
	Complete    bool      `json:"complete"`
	Fingerprint string    `json:"fingerprint"` // of the data set
	Units       int       `json:"units"`
	Result      *Unpacked `json:"result,omitempty"`
}

// span is a range of the samples of one file.
type span struct {
	file, lo, hi int
	bytes        int64
}

// unpacker is a pack that is being unpacked.
type unpacker struct {
	in    *Packed
	out   Place
	o     UnpackOptions
	units [][]span
	first []int64 // number of the first sample of each file

	mu    sync.Mutex
	names map[[2]uint64]struct{}
	res   Unpacked
	done  int64
	total int64
}

// Unpack writes each part of each sample to the file KEY.EXT below out. Samples without keys have their numbers as
// keys. A key that leads out of the folder, and two parts with the same name, are errors of kind Corrupt. If an earlier
// run for the same data set was interrupted, Unpack goes on with it.
func Unpack(ctx context.Context, in *Packed, out Place, o UnpackOptions) (*Unpacked, error) {
	u := &unpacker{in: in, out: out, o: o, names: map[[2]uint64]struct{}{}}
	u.divide()
	unlock, err := out.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	now := &unpackState{Version: stateVersion, Fingerprint: in.Set.Fingerprint(), Units: len(u.units)}
	done, complete, err := u.begin(ctx, now)
	if err != nil || complete {
		return &u.res, err
	}
	if !o.NoVerify && in.Sums != nil {
		if err := u.verify(ctx); err != nil {
			return nil, u.stopped(err)
		}
	}
	if err := u.run(ctx, done); err != nil {
		return nil, u.stopped(err)
	}
	result := u.res
	result.Resumed = 0 // the state does not depend on interruptions
	now.Complete, now.Result = true, &result
	if err := writeJSON(ctx, out, UnpackStateName, now); err != nil {
		return nil, err
	}
	for i := range u.units {
		if err := out.Remove(ctx, unitName(i)); err != nil {
			return nil, err
		}
	}
	return &u.res, out.Sync(ctx)
}

func unitName(i int) string { return fmt.Sprintf("%s%06d", unitPrefix, i) }

// stopped adds to an error how the work goes on.
func (u *unpacker) stopped(err error) error {
	if !errs.Is(err, errs.Cancelled) && !errors.Is(err, context.Canceled) {
		return err
	}
	return &errs.Error{Kind: errs.Cancelled, Op: "unpack", Name: u.out.Shown(""), Err: err,
		Fix: "run the same command again: it goes on with the missing samples"}
}

// divide makes units of samples, and spans of units.
func (u *unpacker) divide() {
	var unit []span
	inUnit := int64(0)
	first := int64(0)
	for file, t := range u.in.Set.Files() {
		u.first = append(u.first, first)
		first += int64(t.Len())
		one := span{file: file}
		flush := func(end int) {
			if one.hi = end; one.hi > one.lo {
				unit = append(unit, one)
			}
			one = span{file: file, lo: end}
		}
		for i := range t.Len() {
			n := int64(0)
			for c := range t.Columns() {
				e, _ := t.Part(i, c)
				n += e.Size
			}
			if one.bytes+n > spanSize || i-one.lo >= 4096 {
				flush(i)
			}
			if inUnit+n > unitSize && inUnit > 0 {
				flush(i)
				u.units, unit, inUnit = append(u.units, unit), nil, 0
			}
			one.bytes += n
			inUnit += n + 64 // so that units of empty samples end, too
			u.total += n
		}
		flush(t.Len())
	}
	if len(unit) > 0 {
		u.units = append(u.units, unit)
	}
}

// begin prepares the destination and returns which units are finished.
func (u *unpacker) begin(ctx context.Context, now *unpackState) (done []bool, complete bool, err error) {
	done = make([]bool, len(u.units))
	listed, _, err := u.out.List(ctx)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return nil, false, err
	}
	at := slices.IndexFunc(listed, func(e Entry) bool { return e.Name == UnpackStateName })
	if at < 0 {
		if len(listed) > 0 {
			return nil, false, errs.New(errs.Invalid, "unpack", u.out.Shown(""), "it is not empty: it has "+listed[0].Name).
				WithFix("choose an empty place")
		}
		return done, false, writeJSON(ctx, u.out, UnpackStateName, now)
	}
	before := &unpackState{}
	if err := readJSON(ctx, u.out, listed[at], before); err != nil {
		return nil, false, err
	}
	if before.Version != now.Version || before.Fingerprint != now.Fingerprint || before.Units != now.Units {
		return nil, false, errs.New(errs.Invalid, "unpack", u.out.Shown(""), fmt.Sprintf(
			"another data set was unpacked here: its fingerprint is %s, and this data set has %s", before.Fingerprint,
			now.Fingerprint)).WithFix("choose an empty place")
	}
	if before.Complete && before.Result != nil {
		u.res = *before.Result
		u.res.WasComplete = true
	}
	for _, e := range listed {
		for i := range done {
			if !strings.HasPrefix(e.Name, unitPrefix) {
				break
			}
			done[i] = done[i] || e.Name == unitName(i)
		}
		if u.res.WasComplete && strings.HasPrefix(e.Name, unitPrefix) {
			if err := u.out.Remove(ctx, e.Name); err != nil {
				return nil, false, err
			}
		}
	}
	return done, u.res.WasComplete, nil
}

// verify compares the files of the pack with their checksums.
func (u *unpacker) verify(ctx context.Context) error {
	buf := make([]byte, checksum.DefaultBlock)
	for _, t := range u.in.Set.Files() {
		sums, err := u.in.Sums(ctx, t.File())
		if err != nil {
			return err
		}
		if sums == nil {
			continue
		}
		f, err := u.in.Open(ctx, t.File())
		if err != nil {
			return err
		}
		if err = sums.CheckSize(t.File(), t.Size()); err == nil {
			err = compare(ctx, f, t.File(), sums, &buf)
		}
		if f.Close(); err != nil {
			return err
		}
		u.res.Verified++
	}
	return nil
}

// compare compares the blocks of a file with their checksums.
func compare(ctx context.Context, f io.ReaderAt, name string, sums *checksum.Sums, buf *[]byte) error {
	if int64(len(*buf)) < sums.Block {
		*buf = make([]byte, sums.Block)
	}
	for i, want := range sums.Blocks {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		off, n := sums.Extent(int64(i))
		if got, err := f.ReadAt((*buf)[:n], off); int64(got) < n {
			return errs.Wrap("verify", name, errs.WithoutPath(cmpErr(err)))
		}
		if got := checksum.Of((*buf)[:n]); got != want {
			return errs.New(errs.Corrupt, "verify", name, fmt.Sprintf(
				"the checksum of bytes %d to %d is %016x, expected %016x", off, off+n, got, want)).
				WithFix("the file is damaged: copy it again, or pack it again; --no-verify unpacks it all the same")
		}
	}
	return nil
}

func cmpErr(err error) error {
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// run unpacks the units that are not finished, several at the same time.
func (u *unpacker) run(ctx context.Context, done []bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(len(u.units), max(4, runtime.GOMAXPROCS(0))) {
		group.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(u.units) {
					return
				}
				if err := u.unit(ctx, i, done[i]); err != nil {
					cancel(err)
				}
			}
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// unit unpacks one unit. If the unit is finished already, its names are only compared with all others.
func (u *unpacker) unit(ctx context.Context, i int, finished bool) error {
	var f Opened
	open := -1
	defer func() {
		if f != nil {
			f.Close()
		}
	}()
	for _, s := range u.units[i] {
		if s.file != open {
			if f != nil {
				f.Close()
				f = nil
			}
			var err error
			if f, err = u.in.Open(ctx, u.in.Set.Files()[s.file].File()); err != nil {
				return err
			}
			open = s.file
		}
		if err := u.span(ctx, f, s, finished); err != nil {
			return err
		}
		u.mu.Lock()
		u.done += s.bytes
		u.res.Samples += int64(s.hi - s.lo)
		if u.o.Progress != nil {
			u.o.Progress(u.done, u.total)
		}
		u.mu.Unlock()
	}
	if finished {
		u.mu.Lock()
		u.res.Resumed++
		u.mu.Unlock()
		return nil
	}
	if err := u.out.Flush(ctx); err != nil {
		return err
	}
	return writeJSON(ctx, u.out, unitName(i), map[string]int{"unit": i})
}
