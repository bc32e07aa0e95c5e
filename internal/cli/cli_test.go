// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/format/safetensors"
	"github.com/nebulaio/nebulaio/internal/synth"
	"github.com/nebulaio/nebulaio/test/built"
)

// program is the built command, for tests that need a process of its own.
var program string

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(child())
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "nebulaio-cli-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if program, err = built.Command(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// result is how a command ended.
type result struct {
	code        int
	out, stderr string
}

// run executes a command in a world without terminal and environment, changed
// by the given functions.
func run(t *testing.T, args []string, change ...func(*World)) result {
	t.Helper()
	var out, stderr bytes.Buffer
	w := World{Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &stderr,
		Env: func(string) string { return "" }, Now: time.Now}
	for _, f := range change {
		f(&w)
	}
	code := Main(w)
	return result{code, out.String(), stderr.String()}
}

func env(vars map[string]string) func(*World) {
	return func(w *World) { w.Env = func(name string) string { return vars[name] } }
}

// want checks the exit code and that the texts are on stdout or, for a failed
// command, on stderr.
func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	where := r.out
	if code != 0 {
		where = r.stderr
	}
	if r.code != code {
		t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.out, r.stderr)
	}
	for _, s := range texts {
		if !strings.Contains(where, s) {
			t.Errorf("no %q in:\n%s", s, where)
		}
	}
	if code == 0 && r.stderr != "" {
		t.Errorf("stderr of a command that succeeded: %q", r.stderr)
	}
	if code != 0 && !strings.HasPrefix(strings.TrimLeft(r.stderr, "\r "), "nebulaio: ") {
		t.Errorf("stderr does not start with the program's name: %q", r.stderr)
	}
}

// decode reads the one JSON object of stdout; anything around it is an error.
func decode[T any](t *testing.T, r result) T {
	t.Helper()
	var v T
	dec := json.NewDecoder(strings.NewReader(r.out))
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("stdout is no JSON: %v\n%s\nstderr: %s", err, r.out, r.stderr)
	}
	if dec.More() {
		t.Errorf("stdout has more than one object:\n%s", r.out)
	}
	return v
}

func tinyModel(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiny.safetensors")
	writeModel(t, path, 0)
	return path
}

// shardedModel is a directory of several small shards.
func shardedModel(t *testing.T) (dir string, files []*format.File) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "sharded")
	return dir, writeModel(t, dir, 2048)
}

func writeModel(t *testing.T, path string, shard int64) []*format.File {
	t.Helper()
	ts, err := synth.Shapes("tiny")
	if err != nil {
		t.Fatal(err)
	}
	files, err := synth.Write(t.Context(), path, synth.Options{Shapes: ts, ShardSize: shard})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// sparseModel is a valid file of one tensor whose n bytes are a hole.
func sparseModel(t *testing.T, n int64) string {
	t.Helper()
	header, err := safetensors.EncodeHeader([]format.Tensor{{Name: "hole", DType: format.U8, Shape: []int64{n}}}, nil,
		safetensors.AlignPage)
	if err != nil {
		t.Fatal(err)
	}
	path := writeFile(t, "sparse.safetensors", header)
	if err := os.Truncate(path, int64(len(header))+n); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// rawModel is a file with this header, valid or not, and n zero bytes of data.
func rawModel(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, n)...)
}
