// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
	"github.com/nebulaio/nebulaio/internal/units"
)

// verifyRun prints the findings of verify as they come.
type verifyRun struct {
	f       *verifyFlags
	a       *app
	p       *sharedProgress
	out     lines
	sum     comparedJSON
	read    atomic.Int64
	first   error // of the first key that could not be read
	skipped []string
}

// add counts one finding, and prints it if the key is not the same.
func (r *verifyRun) add(f place.Finding) error {
	switch f.Outcome {
	case place.Same:
		r.sum.Same++
		r.sum.Bytes += f.SizeA
		r.sum.How[f.How]++
		r.p.say(fmt.Sprintf("compared %s, read %s", plural(int(r.sum.Same), "object"), units.Bytes(r.read.Load())))
		return nil
	case place.Different:
		r.sum.Different++
	case place.AbsentA:
		r.sum.Extra++
	case place.AbsentB:
		r.sum.Missing++
	case place.Failed:
		if r.sum.Failed++; r.first == nil {
			r.first = f.Err
		}
	}
	if r.f.asJSON {
		return r.out.add(findingJSON(f))
	}
	r.p.p.clear()
	r.a.printText(func(w io.Writer) { field(w, string(f.Outcome), "%s", findingText(f)) })
	return r.a.out.failed()
}

func findingJSON(f place.Finding) verifiedJSON {
	v := verifiedJSON{Outcome: f.Outcome, Key: f.Key, How: f.How}
	for _, x := range []struct {
		from int64
		to   **int64
	}{{f.SizeA, &v.SizeA}, {f.SizeB, &v.SizeB}, {f.At, &v.At}} {
		if x.from >= 0 {
			*x.to = &x.from
		}
	}
	if f.Err != nil {
		v.Error = errs.MessageOf(f.Err)
	}
	return v
}

// findingText returns the text of a finding after its outcome.
func findingText(f place.Finding) string {
	key := printable(f.Key)
	switch {
	case f.Err != nil:
		return key + ": " + printable(errs.MessageOf(f.Err))
	case f.Outcome != place.Different:
		return key
	case f.SizeA != f.SizeB:
		return fmt.Sprintf("%s: %d bytes and %d bytes", key, f.SizeA, f.SizeB)
	case f.At >= 0:
		return fmt.Sprintf("%s: the block at byte %d differs", key, f.At)
	}
	return fmt.Sprintf("%s: the checksums differ (%s)", key, f.How)
}

// finish prints the summary and sets the exit code.
func (r *verifyRun) finish() error {
	r.sum.Read = r.read.Load()
	switch {
	case r.sum.Different > 0:
		r.a.exit = errs.Corrupt.ExitCode()
	case r.sum.Missing > 0 || r.sum.Extra > 0:
		r.a.exit = errs.NotFound.ExitCode()
	}
	if r.f.asJSON {
		if err := r.out.add(r.sum); err != nil {
			return err
		}
	} else {
		r.a.printText(func(w io.Writer) {
			var how []string
			for _, h := range slices.Sorted(maps.Keys(r.sum.How)) {
				how = append(how, fmt.Sprintf("%d by %s", r.sum.How[h], h))
			}
			by := ""
			if len(how) > 0 {
				by = " (" + strings.Join(how, ", ") + ")"
			}
			field(w, "same", "%s, %s%s", plural(int(r.sum.Same), "object"), units.Bytes(r.sum.Bytes), by)
			field(w, "result", "%d different, %d missing, %d extra, %d failed; %s read", r.sum.Different, r.sum.Missing,
				r.sum.Extra, r.sum.Failed, units.Bytes(r.sum.Read))
		})
	}
	if r.first == nil {
		return nil
	}
	return &errs.Error{Kind: errs.KindOf(r.first), Op: "verify",
		Msg: fmt.Sprintf("%s could not be read; the first", plural(int(r.sum.Failed), "object")), Err: r.first,
		Fix: errs.FixOf(r.first)}
}
