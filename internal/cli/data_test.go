// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// archives writes tar archives with two samples each, and returns their folder.
func archives(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, name := range []string{"a.cls", "a.txt", "b.cls", "b.txt"} {
			content := "\x1b[2J" + name
			if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o644}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(content)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("t-%d.tar", i)), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// found checks the output of a command that completed and found a fault.
func found(t *testing.T, r result, code int, texts ...string) {
	t.Helper()
	if r.code != code || r.stderr != "" {
		t.Errorf("exit code %d, expected %d; stderr %q", r.code, code, r.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(r.out, text) {
			t.Errorf("no %q in:\n%s", text, r.out)
		}
	}
}

func TestIndexCommand(t *testing.T) {
	dir := archives(t, 3)
	found(t, run(t, []string{"index", dir, "--check"}), 3, "3 missing", "there is no index", "fix: make the index")
	run(t, []string{"index", dir}).want(t, 0, "3 files with 6 samples", "3 made")
	names, err := filepath.Glob(filepath.Join(dir, "*.nbx"))
	if err != nil || len(names) != 3 {
		t.Fatalf("%q, %v", names, err)
	}
	all, err := os.ReadDir(dir)
	if err != nil || len(all) != 6 {
		t.Errorf("%d files are in the folder, expected 3 archives and 3 indexes", len(all))
	}
	v := decode[indexJSON](t, run(t, []string{"index", filepath.Join(dir, "t-{0..2}.tar"), "--json"}))
	if v.States["present"] != 3 || v.Samples != 6 || v.Files[1].State != "present" || v.Files[1].Samples != 2 {
		t.Errorf("%+v", v)
	}
	run(t, []string{"index", dir, "--check"}).want(t, 0, "3 present")
	run(t, []string{"index", dir, "--force"}).want(t, 0, "3 made")
	run(t, []string{"index", dir, "--dali"}).want(t, 0, "3 made")
	if text, err := os.ReadFile(filepath.Join(dir, "t-0.idx")); err != nil ||
		!strings.HasPrefix(string(text), "v1.2 2\n") {
		t.Errorf("%q, %v", text, err)
	}

	if err := os.Truncate(filepath.Join(dir, "t-1.tar"), 700); err != nil {
		t.Fatal(err)
	}
	found(t, run(t, []string{"index", dir}), 5, "2 present, 1 failed", "t-1.tar")
	bad := decode[indexJSON](t, run(t, []string{"index", dir, "--check", "--json"}))
	if f := bad.Files[1]; f.State != "failed" || f.Error == nil || f.Error.Kind != "corrupt" || f.Error.Fix == "" {
		t.Errorf("%+v", f)
	}
	if r := run(t, []string{"index", dir, "--force"}, terminal); !strings.Contains(r.stderr,
		"10.68 KiB of 10.68 KiB  100 %") {
		t.Errorf("progress %q", r.stderr)
	}
	run(t, []string{"index"}).want(t, 2, "0 paths given")
	run(t, []string{"index", dir, "--check", "--force"}).want(t, 2, "--check writes nothing")
	run(t, []string{"index", filepath.Join(dir, "nothing")}).want(t, 3, "nothing")
	run(t, []string{"index", tinyModel(t)}).want(t, 9, "the format is safetensors, expected archives")
}

func TestInspectData(t *testing.T) {
	dir := archives(t, 2)
	r := run(t, []string{"inspect", dir, "--sample", "1"})
	r.want(t, 0, "format    tar\n", "samples   4\n", "files     2, ",
		"sizes     min 18 B, median 18 B, max 18 B per sample",
		"fingerprint ", "\ncls     bytes", "sample    1, key b\n", `\x1b[2Jb.txt`)
	if strings.Contains(r.out, "\x1b") {
		t.Error("a control character reached the output")
	}
	v := decode[dataJSON](t, run(t, []string{"inspect", dir, "--sample", "3", "--json"}))
	if v.Format != "tar" || v.Samples != 4 || len(v.ColumnSizes) != 2 || v.SampleSizes.Bytes != 72 ||
		len(v.Fingerprint) != 32 ||
		v.Sample == nil || v.Sample.Number != 3 || v.Sample.Parts[0].Start != "1b5b324a622e636c73" {
		t.Errorf("%+v", v)
	}
	run(t, []string{"inspect", dir, "--sample", "4"}).want(t, 2, "expected 0 to 3")
	run(t, []string{"inspect", dir, "--sample", "x"}).want(t, 2, "a whole number of 0 or more")
	run(t, []string{"inspect", dir, "--verify"}).want(t, 0, "verified  0 of 2 files match their checksums")
	run(t, []string{"inspect", dir, "--max-sample", "3"}).want(t, 2, "t-0.tar", "has 9 bytes, at most 3 are allowed")

	if err := os.Truncate(filepath.Join(dir, "t-1.tar"), 700); err != nil {
		t.Fatal(err)
	}
	run(t, []string{"inspect", dir}).want(t, 5, "t-1.tar")
	run(t, []string{"inspect", dir, "--skip-bad"}).want(t, 0, "samples   2\n", "skipped 1 bad file", "t-1.tar")
	v = decode[dataJSON](t, run(t, []string{"inspect", dir, "--skip-bad", "--json"}))
	if len(v.Bad) != 1 || v.BadAll != 1 || !strings.HasSuffix(v.Bad[0].Name, "t-1.tar") || v.Bad[0].Reason == "" {
		t.Errorf("%+v", v.Bad)
	}
}

// TestInspectChoosesTheView shows models as before, and other files as training data.
func TestInspectChoosesTheView(t *testing.T) {
	model := tinyModel(t)
	run(t, []string{"inspect", model}).want(t, 0, "\nname ")
	run(t, []string{"inspect", filepath.Dir(model)}).want(t, 0, "\nname ")
	run(t, []string{"inspect", filepath.Dir(model), "--format", "files"}).want(t, 0, "format    files\n", "samples   1\n")
	dir := t.TempDir()
	for _, name := range []string{"a.jpg", "a.txt", "b.jpg", "b.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, []string{"inspect", dir}).want(t, 0, "format    groups\n", "samples   2\n")
	run(t, []string{"inspect", dir, "--format", "files"}).want(t, 0, "format    files\n", "samples   4\n")
	run(t, []string{"inspect", dir, "--format", "tarr"}).want(t, 2, "tarr")
	run(t, []string{"inspect", filepath.Join(dir, "*.jpg")}).want(t, 0, "samples   2\n")
	run(t, []string{"inspect", filepath.Join(dir, "nothing")}).want(t, 3, "nothing")
	run(t, []string{"inspect", t.TempDir()}).want(t, 3)
}
