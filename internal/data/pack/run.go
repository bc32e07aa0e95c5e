// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Result says what Run did.
type Result struct {
	Totals
	Format      string
	SourceFiles int
	SourceBytes int64
	Resumed     int  // number of shards that an earlier run had finished
	Verified    bool // all files were compared with their checksums
	WasComplete bool // an earlier run had finished the whole pack
}

// packer is a pack that is being made.
type packer struct {
	src, out Place
	o        Options
	plan     *plan
	format   shape
	records  []*record

	mu   sync.Mutex
	next int   // the next shard to look at
	done int64 // source bytes that are packed
}

// Run packs src to out. If an earlier run with the same source and options was interrupted, Run goes on with it. The
// error is of kind Cancelled if the context ends. Finished shards then stay, and the next run goes on after them.
func Run(ctx context.Context, src, out Place, o Options) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := apart(src, out); err != nil {
		return nil, err
	}
	p := &packer{src: src, out: out, o: o}
	var err error
	if p.plan, err = makePlan(ctx, src, &p.o); err != nil {
		return nil, err
	}
	if p.format, err = newShape(ctx, src, p.plan, &p.o); err != nil {
		return nil, err
	}
	unlock, err := out.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	begun, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	res := &Result{Format: p.o.Format, SourceFiles: p.plan.listed, SourceBytes: p.plan.bytes}
	if begun.Complete {
		res.Totals, res.WasComplete, res.Resumed = *begun.Result, true, begun.Shards
		return res, nil
	}
	res.Resumed = len(p.records) - count(p.records, nil)
	if err := p.pack(ctx); err != nil {
		return nil, err
	}
	return res, p.finish(ctx, begun, res)
}

func count(all []*record, one *record) int {
	n := 0
	for _, r := range all {
		if r == one {
			n++
		}
	}
	return n
}

// apart refuses a destination inside of the source, because the next run would pack the pack.
func apart(src, out Place) error {
	a, b := src.Shown(""), out.Shown("")
	_, fromFolder := src.(*folder)
	_, toFolder := out.(*folder)
	if fromFolder && toFolder {
		a, b = real(a), real(b)
	}
	if a == b || strings.HasPrefix(b, strings.TrimSuffix(a, "/")+"/") {
		return errs.New(errs.Invalid, "pack", out.Shown(""), "the pack would be inside of its source "+src.Shown("")).
			WithFix("choose a destination outside of the source")
	}
	return nil
}

// real returns a path without links, as far as it exists.
func real(p string) string {
	if abs, err := filepath.Abs(p); err == nil {
		p = abs
	}
	rest := ""
	for at := p; ; at = filepath.Dir(at) {
		if known, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(known, rest)
		}
		if at == filepath.Dir(at) {
			return p
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

// packNames matches the names of all files that packs have.
var packNames = regexp.MustCompile(`^(shard-\d{6,}\.(tar|tfrecord|bin)|shard-\d{6,}\.idx|shard-\d{6,}\.tar\.nbx|` +
	`shard-\d{6,}\.tfrecord\.idx|shard\.\d{5,}\.mds|index\.json)(\.crc64nvme)?$`)

// begin prepares the destination. It returns the state of an earlier run that goes on, or the new state.
func (p *packer) begin(ctx context.Context) (*state, error) {
	listed, _, err := p.out.List(ctx)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return nil, err
	}
	notOurs := slices.IndexFunc(listed, func(e Entry) bool { return !packNames.MatchString(e.Name) && !ours(e.Name) })
	if notOurs >= 0 { // also for a restart, before anything is removed
		return nil, errs.New(errs.Invalid, "pack", p.out.Shown(""),
			fmt.Sprintf("it is not empty: %s is no part of a pack", listed[notOurs].Name)).WithFix("choose an empty place")
	}
	if p.o.Restart {
		if err := p.clear(ctx, listed); err != nil {
			return nil, err
		}
		listed = nil
	}
	there := make(map[string]Entry, len(listed))
	for _, e := range listed {
		there[e.Name] = e
	}
	now := newState(p.plan, &p.o)
	if e, ok := there[StateName]; ok {
		return p.resume(ctx, e, there, now)
	}
	if len(listed) > 0 {
		return nil, errs.New(errs.Invalid, "pack", p.out.Shown(""),
			fmt.Sprintf("it is not empty: it has %d files, such as %s", len(listed), path.Base(listed[0].Name))).
			WithFix("choose an empty place, or give --restart to replace the old pack")
	}
	p.records = make([]*record, now.Shards)
	return now, writeJSON(ctx, p.out, StateName, now)
}

// resume goes on with the pack whose state is the file e.
func (p *packer) resume(ctx context.Context, e Entry, there map[string]Entry, now *state) (*state, error) {
	before := &state{}
	if err := readJSON(ctx, p.out, e, before); err != nil {
		return nil, err
	}
	if before.Version != stateVersion {
		return nil, errs.New(errs.Unsupported, "pack", p.out.Shown(StateName),
			fmt.Sprintf("its version is %d, expected %d", before.Version, stateVersion)).WithFix(fixRestart)
	}
	what := "an unfinished pack is there, and this run differs: "
	if before.Complete {
		what = "another pack is there: "
	}
	if diff := before.differs(now); diff != "" {
		return nil, errs.New(errs.Invalid, "pack", p.out.Shown(""), what+diff).WithFix(fixRestart)
	}
	if before.Complete && before.Result != nil {
		return before, p.removeRecords(ctx, there) // which a killed run left
	}
	var err error
	if p.records, err = load(ctx, p.out, there, now.Shards); err != nil {
		return nil, err
	}
	if before.SkipBad != now.SkipBad { // bad files are skipped from now on
		return now, writeJSON(ctx, p.out, StateName, now)
	}
	return now, nil
}

// clear removes the files of an old pack. The state goes first, so that no state describes half of a pack.
func (p *packer) clear(ctx context.Context, listed []Entry) error {
	if err := p.out.Remove(ctx, StateName); err != nil {
		return err
	}
	if err := p.out.Sync(ctx); err != nil {
		return err
	}
	for _, e := range listed {
		if err := p.out.Remove(ctx, e.Name); err != nil {
			return err
		}
	}
	return p.out.Sync(ctx)
}

// pack writes the shards that have no record, several at the same time.
func (p *packer) pack(ctx context.Context) error {
	for i, r := range p.records {
		if r != nil {
			for at := p.plan.shards[i]; at < p.plan.shards[i+1]; at++ {
				p.done += p.plan.at(at).size
			}
		}
	}
	lanes := p.o.lanes
	if lanes == 0 {
		lanes = min(max(runtime.GOMAXPROCS(0), 2), 16)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for range min(lanes, len(p.records)) {
		group.Go(func() {
			for n := p.take(); n >= 0 && ctx.Err() == nil; n = p.take() {
				r, err := p.shard(ctx, n)
				if err == nil {
					p.records[n] = r
					continue
				}
				cancel(err)
				return
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return p.stopped(err)
	}
	return nil
}

// stopped adds to an error how the pack goes on.
func (p *packer) stopped(err error) error {
	if !errs.Is(err, errs.Cancelled) && !errors.Is(err, context.Canceled) {
		return err
	}
	return &errs.Error{Kind: errs.Cancelled, Op: "pack", Name: p.out.Shown(""), Err: err,
		Fix: "run the same command again: it goes on with the missing shards"}
}

// take returns the number of the next shard without a record, or -1.
func (p *packer) take() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.next < len(p.records) {
		if p.next++; p.records[p.next-1] == nil {
			return p.next - 1
		}
	}
	return -1
}

// moved counts source bytes that are packed.
func (p *packer) moved(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	if p.o.Progress != nil {
		p.o.Progress(p.done, p.plan.bytes)
	}
}

// finish writes the files of the whole pack, verifies all files and marks the pack as complete.
func (p *packer) finish(ctx context.Context, now *state, res *Result) error {
	files := []writtenFile{}
	t := &res.Totals
	t.Bad, t.BadCount = p.plan.bad, len(p.plan.bad)
	for _, r := range p.records {
		t.Samples += r.Samples
		t.Empty += r.Empty
		t.BadCount += len(r.Bad)
		t.Bad = append(t.Bad, r.Bad...)
		files = append(files, r.Files...)
		if len(r.Files) > 0 {
			t.Shards++
		}
	}
	t.Bad = t.Bad[:min(len(t.Bad), maxBadListed)]
	if t.Samples == 0 {
		return errs.New(errs.Invalid, "pack", p.src.Shown(""), fmt.Sprintf("all %d samples are bad", t.BadCount))
	}
	whole, err := p.format.index(p.records)
	if err != nil {
		return err
	}
	for _, f := range whole {
		if err := writeFile(ctx, p.out, f.name, f.content); err != nil {
			return err
		}
		files = append(files, writtenFile{Name: f.name, Size: int64(len(f.content)), Sum: sumText(checksum.Of(f.content))})
	}
	if err := p.out.Sync(ctx); err != nil {
		return err
	}
	for _, f := range files {
		t.Files++
		t.Bytes += f.Size
		if f.Sided {
			t.Files++
			t.Bytes += sidecarSize(f.Size)
		}
	}
	if !p.o.NoVerify {
		if err := p.verify(ctx, files); err != nil {
			return p.stopped(err)
		}
		res.Verified = true
	}
	now.Complete, now.Result = true, t
	if err := writeJSON(ctx, p.out, StateName, now); err != nil {
		return err
	}
	for i := range p.records {
		if err := p.out.Remove(ctx, recordName(i)); err != nil {
			return err
		}
	}
	return p.out.Sync(ctx)
}

// removeRecords removes the records of a pack that is complete.
func (p *packer) removeRecords(ctx context.Context, there map[string]Entry) error {
	for name := range there {
		if strings.HasPrefix(name, recordPrefix) {
			if err := p.out.Remove(ctx, name); err != nil {
				return err
			}
		}
	}
	return p.out.Sync(ctx)
}
