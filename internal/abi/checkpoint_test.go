// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// answer waits for a job and decodes its report.
func answer[T any](t *testing.T, table *Table, h uint64, err error) T {
	t.Helper()
	var out T
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := table.Release(h); err != nil {
			t.Error(err)
		}
	}()
	if _, _, _, err := table.Wait(h, -1); err != nil {
		t.Fatal(err)
	}
	b, err := table.Report(h)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCheckpoints(t *testing.T) {
	table := &Table{}
	c := Checkpoints{table}
	sys, err := table.OpenSystem(`{"devices":"off"}`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := table.Release(sys); err != nil {
			t.Error(err)
		}
	}()
	root := t.TempDir()
	for _, step := range []string{"1", "2"} {
		dir := filepath.Join(root, "step-000000000"+step)
		name := "__0_0_000000000000000" + step + ".distcp"
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("content"), 0o644); err != nil {
			t.Fatal(err)
		}
		options, err := json.Marshal(map[string]string{"metadata": base64.StdEncoding.EncodeToString([]byte("m")),
			"manifest": `{"id":"000000000000000` + step + `","step":` + step + `,"world":1,"files":[{"name":"` + name +
				`","size":7}],"items":[]}`})
		if err != nil {
			t.Fatal(err)
		}
		h, err := c.StartCommit(sys, dir, string(options))
		if r := answer[nebulaio.CheckpointCommit](t, table, h, err); r.Bytes != 7 || r.Files != 1 {
			t.Errorf("%+v", r)
		}
	}
	h, err := c.StartList(sys, root, `{"all":true}`)
	if r := answer[[]nebulaio.Checkpoint](t, table, h, err); len(r) != 2 || !r[1].Complete || *r[1].Step != 2 {
		t.Errorf("%+v", r)
	}
	h, err = c.StartVerify(sys, filepath.Join(root, "step-0000000002"), "")
	if r := answer[nebulaio.CheckpointVerification](t, table, h, err); r.Verdict != "no checksums" ||
		len(r.Unverified) != 1 {
		t.Errorf("%+v", r)
	}
	h, err = c.StartPrune(sys, root, `{"keep_last":1}`)
	if r := answer[nebulaio.CheckpointPruning](t, table, h, err); len(r.Removed) != 1 || len(r.Kept) != 1 {
		t.Errorf("%+v", r)
	}
	if h, err = c.StartList(sys, filepath.Join(root, "none"), ""); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := table.Wait(h, -1); !errs.Is(err, errs.NotFound) {
		t.Errorf("a missing root: %v", err)
	}
	if b, err := table.Report(h); string(b) != "null" || err != nil {
		t.Errorf("the report of a failed job is %q, %v", b, err)
	}
	if err := table.Release(h); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{`{"metadata":"*"}`, `{"metadata":1}`, `{"unknown":1}`} {
		if _, err := c.StartCommit(sys, root, bad); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := c.StartPrune(sys, root, `{"keep_last":"x"}`); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(), "keep_last") {
		t.Errorf("%v", err)
	}
	if _, err := c.StartList(sys+100, root, ""); !errs.Is(err, errs.Closed) {
		t.Errorf("a handle that is not open: %v", err)
	}
}
