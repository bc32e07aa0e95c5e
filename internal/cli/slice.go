// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// sliceFlags adds the flags that select parts of tensors.
func sliceFlags(fs *pflag.FlagSet, ss *[]nebulaio.Slice, hs *[]nebulaio.Shard) {
	fs.Var(&value{kind: "SLICE", want: "GLOB[START:STOP,...]", set: func(s string) error {
		x, err := parseSlice(s)
		*ss = append(*ss, x)
		return err
	}}, "slice", "load only a slice of each tensor that matches GLOB: 'GLOB[0:128,:]', "+
		"with one range per leading dimension; repeatable")
	fs.Var(&value{kind: "SHARD", want: "GLOB=DIM:RANK/WORLD", set: func(s string) error {
		x, err := parseShard(s)
		*hs = append(*hs, x)
		return err
	}}, "shard", "load only one rank's part of each tensor that matches GLOB: "+
		"'GLOB=DIM:RANK/WORLD', such as '*=0:3/8'; repeatable")
}

// parseSlice parses GLOB[START:STOP,...]. The last pair of brackets is the box,
// because the glob may contain brackets too.
func parseSlice(s string) (nebulaio.Slice, error) {
	bad := func(why string) (nebulaio.Slice, error) {
		return nebulaio.Slice{}, errs.New(errs.Invalid, "read slice", strconv.Quote(s),
			why+"; expected GLOB[START:STOP,...] such as 'model.*.weight[0:128,:]'")
	}
	open := strings.LastIndexByte(s, '[')
	if open < 0 || !strings.HasSuffix(s, "]") {
		return bad("does not end with a box in brackets")
	}
	if open == 0 {
		return bad("names no tensor")
	}
	out := nebulaio.Slice{Tensor: s[:open]}
	for _, text := range strings.Split(s[open+1:len(s)-1], ",") {
		text = strings.TrimSpace(text)
		start, stop, ok := strings.Cut(text, ":")
		if !ok {
			return bad(fmt.Sprintf("has the range %q, which has no colon (one index i is i:i+1)", text))
		}
		r := nebulaio.Range{Stop: -1}
		for _, x := range []struct {
			text string
			to   *int64
		}{{start, &r.Start}, {stop, &r.Stop}} {
			if x.text == "" {
				continue
			}
			n, err := strconv.ParseUint(x.text, 10, 63)
			if err != nil {
				return bad(fmt.Sprintf("has the range %q, in which %q is not a whole number from 0 to %d; "+
					"steps and negative numbers are not supported", text, x.text, int64(math.MaxInt64)))
			}
			*x.to = int64(n)
		}
		out.Ranges = append(out.Ranges, r)
	}
	return out, nil
}

// parseShard parses GLOB=DIM:RANK/WORLD.
func parseShard(s string) (nebulaio.Shard, error) {
	eq := strings.LastIndexByte(s, '=')
	if eq > 0 {
		dim, rest, ok1 := strings.Cut(s[eq+1:], ":")
		rank, world, ok2 := strings.Cut(rest, "/")
		d, err1 := strconv.ParseUint(dim, 10, 31)
		r, err2 := strconv.ParseUint(rank, 10, 31)
		w, err3 := strconv.ParseUint(world, 10, 31)
		if ok1 && ok2 && err1 == nil && err2 == nil && err3 == nil && r < w {
			return nebulaio.Shard{Tensor: s[:eq], Dim: int(d), Rank: int(r), World: int(w)}, nil
		}
	}
	return nebulaio.Shard{}, errs.New(errs.Invalid, "read shard", strconv.Quote(s),
		"is not a shard; expected GLOB=DIM:RANK/WORLD with RANK below WORLD, such as '*.weight=0:3/8'")
}
