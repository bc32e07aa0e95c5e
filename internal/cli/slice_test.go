// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs/vfstest"
)

func TestParseSlice(t *testing.T) {
	for text, want := range map[string]string{
		"a[0:128,:]":           `{a [{0 128} {0 -1}]}`,
		"a.*[:]":               `{a.* [{0 -1}]}`,
		"l[0-9].w[3:,:5, 1:2]": `{l[0-9].w [{3 -1} {0 5} {1 2}]}`,
		"a[0:0]":               `{a [{0 0}]}`, // the model says that it is empty
	} {
		if got, err := parseSlice(text); err != nil || fmt.Sprintf("{%s %v}", got.Tensor, got.Ranges) != want {
			t.Errorf("%s: %v %v, expected %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "does not end", "a": "does not end", "a[0:1": "does not end", "a]": "does not end", "[0:1]": "names no tensor",
		"a[0:1]b": "does not end",
		"a[]":     "no colon", "a[1]": `the range "1", which has no colon`, "a[0:1,]": "no colon",
		"a[-1:]": `"-1" is not a whole number`, "a[0:2:2]": `"2:2" is not a whole number`,
		"a[0:9223372036854775808]": "not a whole number", "a[+1:2]": "not a whole number", "a[0x1:2]": "not a whole number",
		"a[1 :2]": "not a whole number",
	} {
		if _, err := parseSlice(text); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "expected GLOB[") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestParseShard(t *testing.T) {
	if got, err := parseShard("a=b.*=1:3/8"); err != nil ||
		got != (nebulaio.Shard{Tensor: "a=b.*", Dim: 1, Rank: 3, World: 8}) {
		t.Errorf("%+v %v", got, err)
	}
	for _, text := range []string{"", "a", "a=", "=0:0/1", "a=0", "a=0:1", "a=0:8/8", "a=0:0/0", "a=-1:0/2", "a=0:0/2/3",
		"a=0:0/99999999999", "a=x:0/2"} {
		if _, err := parseShard(text); !errs.Is(err, errs.Invalid) ||
			!strings.Contains(err.Error(), "expected GLOB=DIM:RANK/WORLD") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzSlice: whatever is accepted is a slice that prints as one that reads the
// same, and whatever is refused says what is expected.
func FuzzSlice(f *testing.F) {
	for _, s := range []string{"a[0:128,:]", "l[0-9].w[3:,:5]", "a[", "[:]", "a=0:1/8", "a[0:99999999999999999999]",
		"é[:]", "a[:,:,:]=0:1/2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSlice(text)
		if err != nil {
			if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "expected GLOB[") {
				t.Fatalf("%q: %v", text, err)
			}
		} else {
			var parts []string
			for _, r := range s.Ranges {
				part := fmt.Sprintf("%d:%d", r.Start, r.Stop)
				if r.Stop == -1 {
					part = fmt.Sprintf("%d:", r.Start)
				}
				if r.Start < 0 || r.Stop < -1 {
					t.Fatalf("%q: %+v", text, r)
				}
				parts = append(parts, part)
			}
			again, err := parseSlice(s.Tensor + "[" + strings.Join(parts, ",") + "]")
			if err != nil || fmt.Sprint(again) != fmt.Sprint(s) || s.Tensor == "" || len(s.Ranges) == 0 {
				t.Fatalf("%q: %+v, then %+v, %v", text, s, again, err)
			}
		}
		if h, err := parseShard(text); err == nil && (h.Tensor == "" || h.Dim < 0 || h.Rank < 0 || h.Rank >= h.World) {
			t.Fatalf("%q: %+v", text, h)
		}
	})
}

func TestLoadSliceAndShard(t *testing.T) {
	path := tinyModel(t)
	// u8.matrix is [4, 8], f32.cube is [3, 5, 4].
	v := decode[loadsJSON](t, run(t, []string{"load", path, "--device", "host", "--json", "--tensors", "u8.matrix",
		"--tensors", "f32.cube",
		"--slice", "u8.matrix[1:3,2:]", "--shard", "f32.c*=1:1/2"}))
	if l := v.Loads[0]; l.Bytes != 2*6+3*3*4*4 || l.Wanted != l.Bytes || l.Read < l.Wanted || l.Amplification < 1 {
		t.Errorf("%d bytes, %+v", l.Bytes, l.ReadTotals)
	}
	vfstest.Hold(t, path, 0, vfstest.Open(t, path).Size()) // a direct read reads the whole blocks of the disk
	run(t, []string{"load", path, "--device", "host", "--tensors", "u8.matrix", "--slice", "u8.matrix[:,0:1]"}).
		want(t, 0, "bytes     4 B\n", "\nread      25 B, 6.25 times the requested bytes\n", "\npack ")
	for want, args := range map[string][]string{
		"names no tensor":           {"--slice", "[0:1]"},
		"takes [0, 5) of dimension": {"--slice", "u8.matrix[0:5]"},
		"expected GLOB=DIM:":        {"--shard", "u8.matrix=0:2/2"},
		"is chosen by slice \"u8.matrix\" and by slice \"u8.m*\"": {"--slice", "u8.m*[:]", "--slice", "u8.matrix[0:1]"},
		"cuts inside a byte": {"--slice", "f4.matrix[:,0:1]"},
	} {
		run(t, append([]string{"load", path, "--device", "host"}, args...)).want(t, 2, want)
	}
	run(t, []string{"load", path, "--device", "host", "--slice", "none[0:1]"}).want(t, 3, `"none"`,
		"matches no chosen tensor", "fix: list the names")
}
