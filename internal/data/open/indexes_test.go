// SPDX-License-Identifier: Apache-2.0

package open_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/open"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// states makes or checks the indexes of a folder, and returns the state of each file.
func states(t *testing.T, m memory, o open.IndexOptions, sources ...string) ([]open.Index, string) {
	t.Helper()
	var mu sync.Mutex
	written := memory{}
	o.Write = func(_ context.Context, name string, content []byte) error {
		mu.Lock()
		defer mu.Unlock()
		written[name] = bytes.Clone(content)
		return nil
	}
	all, err := open.MakeIndexes(t.Context(), m, sources, o)
	check(t, err)
	maps.Copy(m, written)
	text := ""
	for _, x := range all {
		text += " " + string(x.State)
		if (x.Why != nil) != (x.State == open.IndexMissing || x.State == open.IndexWrong || x.State == open.IndexFailed) {
			t.Errorf("%s is %s: %v", x.Name, x.State, x.Why)
		}
	}
	return all, text
}

// TestIndexesAreMadeOnce makes the indexes of archives, finds them again, and notices wrong ones.
func TestIndexesAreMadeOnce(t *testing.T) {
	a, aIndex, aDALI := archive(t, "d/a.tar", "1", "2")
	b, bIndex, _ := archive(t, "d/b.tar", "3")
	m := memory{"d/a.tar": a, "d/b.tar": b, "d/c.tar": a[:1200], "d/README": nil}
	for _, step := range []struct {
		o    open.IndexOptions
		want string
	}{
		{open.IndexOptions{Check: true}, " missing missing failed"},
		{open.IndexOptions{}, " made made failed"},
		{open.IndexOptions{}, " present present failed"},
		{open.IndexOptions{Check: true}, " present present failed"},
		{open.IndexOptions{Force: true}, " made made failed"},
	} {
		if all, got := states(t, m, step.o, "d"); got != step.want || !errs.Is(all[2].Why, errs.Corrupt) {
			t.Errorf("%+v: %s, expected %s; %v", step.o, got, step.want, all[2].Why)
		}
	}
	if !bytes.Equal(m["d/a.tar.nbx"], aIndex) || !bytes.Equal(m["d/b.tar.nbx"], bIndex) || m["d/c.tar.nbx"] != nil {
		t.Error("the indexes are not those of the writer")
	}
	m["d/b.tar.nbx"] = aIndex
	m["d/a.tar.nbx"] = flipped(aIndex, 60)
	all, got := states(t, m, open.IndexOptions{Check: true}, "d/a.tar", "d/b.tar")
	if got != " wrong wrong" || !errs.Is(all[0].Why, errs.Corrupt) {
		t.Errorf("%s: %v", got, all[0].Why)
	}
	if _, got = states(t, m, open.IndexOptions{}, "d/{a,b}.tar"); got != " made made" {
		t.Error(got)
	}
	all, got = states(t, m, open.IndexOptions{DALI: true}, "d/a.tar")
	if got != " made" || all[0].Name != "d/a.idx" || !bytes.Equal(m["d/a.idx"], aDALI) || all[0].Samples != 2 {
		t.Errorf("%s: %+v", got, all[0])
	}
	if _, got = states(t, m, open.IndexOptions{DALI: true}, "d/a.tar"); got != " present" {
		t.Error(got)
	}
}

// TestAnIdxOfSomethingElseStays does not replace the tokens' index of Megatron.
func TestAnIdxOfSomethingElseStays(t *testing.T) {
	tar, _, _ := archive(t, "a.tar", "1")
	m := memory{"a.tar": tar, "a.idx": []byte("MMIDIDX")}
	all, got := states(t, m, open.IndexOptions{DALI: true}, "a.tar")
	if got != " failed" || !errs.Is(all[0].Why, errs.Invalid) || string(m["a.idx"]) != "MMIDIDX" {
		t.Errorf("%s: %v", got, all[0].Why)
	}
	if _, got = states(t, m, open.IndexOptions{DALI: true, Force: true}, "a.tar"); got != " made" {
		t.Error(got)
	}
}

// TestIndexesOfTFRecords are those of tfrecord2idx.
func TestIndexesOfTFRecords(t *testing.T) {
	m := memory{"d/a.tfrecord": records(t, "one", "three"), "d/b.tfrecord-00000-of-00001": records(t, "x")}
	all, got := states(t, m, open.IndexOptions{DALI: true}, "d")
	if got != " made made" || string(m["d/a.idx"]) != "0 19\n19 21\n" || all[1].Name != "d/b.tfrecord-00000-of-00001.idx" {
		t.Errorf("%s: %q, %s", got, m["d/a.idx"], all[1].Name)
	}
	if _, got = states(t, m, open.IndexOptions{DALI: true}, "d"); got != " present present" {
		t.Error(got)
	}
	m["d/a.tfrecord"] = records(t, "one", "three", "four")
	if _, got = states(t, m, open.IndexOptions{DALI: true}, "d"); got != " made present" {
		t.Error(got)
	}
}

// TestWhatHasNoIndex is refused.
func TestWhatHasNoIndex(t *testing.T) {
	for name, m := range map[string]memory{"d": {"d/a.txt": nil}, "r.tfrecord": {"r.tfrecord": records(t, "x")},
		"a.npy": {"a.npy": array(t, "x")}} {
		if _, err := open.MakeIndexes(t.Context(), m, []string{name}, open.IndexOptions{}); !errs.Is(err, errs.Unsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := open.MakeIndexes(t.Context(), memory{}, []string{"a.tar"}, open.IndexOptions{}); !errs.Is(err,
		errs.NotFound) {
		t.Errorf("%v", err)
	}
	tar, _, _ := archive(t, "a.tar", "1")
	ctx, cancel := context.WithCancel(t.Context())
	o := open.IndexOptions{Progress: func(_, _ int64) { cancel() },
		Write: func(ctx context.Context, _ string, _ []byte) error {
			return ctx.Err()
		}}
	if _, err := open.MakeIndexes(ctx, memory{"a.tar": tar}, []string{"a.tar"}, o); !errs.Is(err, errs.Cancelled) {
		t.Errorf("cancelled: %v", err)
	}
	o = open.IndexOptions{Write: func(context.Context, string, []byte) error { return errors.New("disk full") }}
	all, err := open.MakeIndexes(t.Context(), memory{"a.tar": tar}, []string{"a.tar"}, o)
	if err != nil || all[0].State != open.IndexFailed || all[0].Why == nil {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestProgress counts the bytes of files that are scanned or verified.
func TestProgress(t *testing.T) {
	tar, _, _ := archive(t, "d/a.tar", "1", "2")
	r := records(t, "one")
	hashed := mdsShards(t, "d/")
	for name, c := range map[string]struct {
		place memory
		o     open.Options
		want  int64
	}{
		"scan": {memory{"d/a.tar": tar, "d/b.tar": tar}, open.Options{}, int64(2 * len(tar))},
		"verify": {memory{"d/a.tar": tar, "d/a.tar.crc64nvme": sums(tar)}, open.Options{Verify: true},
			int64(len(tar))},
		"verify a TFRecord": {memory{"d/a.tfrecord": r, "d/a.tfrecord.crc64nvme": sums(r)}, open.Options{Verify: true},
			int64(len(r))},
		"verify hashes": {hashed, open.Options{Verify: true}, int64(len(hashed["d/shard.00000.mds"]) +
			len(hashed["d/shard.00001.mds"]))},
		"verify files": {memory{"d/a.txt": r, "d/a.txt.crc64nvme": sums(r)}, open.Options{Verify: true}, int64(len(r))},
	} {
		done, total := int64(0), int64(0)
		c.o.Progress = func(d, t int64) { done, total = d, t }
		must(t, c.place, c.o, "d")
		if done != c.want || total != c.want {
			t.Errorf("%s: %d of %d, expected %d", name, done, total, c.want)
		}
	}
}
