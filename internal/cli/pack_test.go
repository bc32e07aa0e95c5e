// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/nebulaio/nebulaio/internal/data/tokens"
	"github.com/nebulaio/nebulaio/test/effort"
)

// sampleFiles writes n files of lo to hi bytes, two for each sample, and returns their folder.
func sampleFiles(t *testing.T, n, lo, hi int) string {
	t.Helper()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(uint64(n), 16))
	noise := make([]byte, 2*hi)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	for i := range n {
		folder := filepath.Join(dir, fmt.Sprintf("part%03d", i/500))
		if i%500 == 0 {
			if err := os.Mkdir(folder, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		at := rng.IntN(hi)
		name := filepath.Join(folder, fmt.Sprintf("%06d.%s", i/2, []string{"jpg", "cls"}[i%2]))
		if err := os.WriteFile(name, noise[at:at+lo+rng.IntN(hi-lo)], 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// equalFolders compares two folders byte by byte. Files that begin with the prefix are left out.
func equalFolders(t *testing.T, got, want, without string) {
	t.Helper()
	list := func(dir string) map[string]string {
		all := map[string]string{}
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && (without == "" || !strings.HasPrefix(d.Name(), without)) {
				name, _ := filepath.Rel(dir, path)
				all[name] = path
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	a, b := list(got), list(want)
	if len(a) != len(b) {
		t.Errorf("%s has %d files, expected %d", got, len(a), len(b))
	}
	for name, path := range b {
		one, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if two, err := os.ReadFile(a[name]); err != nil || !bytes.Equal(one, two) {
			t.Errorf("%s differs: %d bytes, expected %d, %v", name, len(two), len(one), err)
		}
	}
}

// TestPackAndUnpack runs both commands on folders.
func TestPackAndUnpack(t *testing.T) {
	src, out, back := sampleFiles(t, 40, 100, 9000), filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "back")
	run(t, []string{"pack", src, out, "--format", "tar", "--aligned", "--shuffle", "5"}).want(t, 0,
		"samples   20 in 1 shard", "verified  yes")
	run(t, []string{"unpack", out, back}).want(t, 0, "samples   20", "verified  1 file")
	equalFolders(t, back, src, ".nebulaio-")
	r := run(t, []string{"pack", src, filepath.Join(t.TempDir(), "o"), "--format", "mds", "--encoding", "cls=bytes",
		"--json"})
	r.want(t, 0)
	if v := decode[packJSON](t, r); v.Samples != 20 || !v.Verified || v.BadCount != 0 || v.Bad == nil ||
		v.SourceFiles != 40 {
		t.Errorf("%+v", v)
	}
	run(t, []string{"pack", src, out, "--format", "tar"}).want(t, 2, "another pack is there", "shuffle", "--restart")
	run(t, []string{"pack", src, out}).want(t, 2, "--format is not given", "tar, mds, bin or tfrecord")
	run(t, []string{"pack", src}).want(t, 2, "1 path given")
	run(t, []string{"pack", src, "ftp://x/y", "--format", "tar"}).want(t, 2, "ftp")
	run(t, []string{"pack", src, out, "--format", "tar", "--shuffle", "x"}).want(t, 2, "--shuffle")
	run(t, []string{"pack", src, out, "--format", "mds", "--encoding", "cls"}).want(t, 2, "txt=str")
	run(t, []string{"pack", src, out, "--format", "bin"}).want(t, 2, "part000/000000.cls", ".npy")
	run(t, []string{"pack", src, out, "--format", "bin", "--append-eod", "<eod>"}).want(t, 2, "<eod>")
	run(t, []string{"pack", filepath.Join(src, "none"), out, "--format", "tar"}).want(t, 3, "none")
	run(t, []string{"unpack", src, back}).want(t, 3, "none of its 40 files is a pack")
}

// TestPackTokens packs tokens of both kinds of files.
func TestPackTokens(t *testing.T) {
	src, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(filepath.Join(src, "a.bin"), []byte{1, 0, 2, 0}, 0o666); err != nil {
		t.Fatal(err)
	}
	run(t, []string{"pack", src, out, "--format", "bin", "--dtype", "uint16", "--append-eod", "9"}).want(t, 0,
		"samples   1")
	if b, err := os.ReadFile(filepath.Join(out, "shard-000000.bin")); err != nil ||
		!bytes.Equal(b, []byte{1, 0, 2, 0, 9, 0}) {
		t.Errorf("%v, %v", b, err)
	}
}

// TestPackInBuckets packs from and to a server, and unpacks from and to it.
func TestPackInBuckets(t *testing.T) {
	effort.Slow(t)
	p := startServer(t, filepath.Join(t.TempDir(), "store"),
		[]string{"NEBULAIO_ROOT_USER=cli-user", "NEBULAIO_ROOT_PASSWORD=cli-password-1"})
	m := p.client("cli-user", "cli-password-1")
	if err := m.MakeBucket(t.Context(), "box", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	keys := env(map[string]string{"NEBULAIO_ENDPOINT": p.Endpoint, "NEBULAIO_ACCESS_KEY": "cli-user",
		"NEBULAIO_SECRET_KEY": "cli-password-1"})
	src, local, back := sampleFiles(t, 60, 100, 9000), filepath.Join(t.TempDir(), "out"),
		filepath.Join(t.TempDir(), "back")
	// A sample of more than one part of an upload.
	large := filepath.Join(src, "part000", "large")
	for ext, n := range map[string]int{".jpg": 40 << 20, ".cls": 1} {
		if err := os.WriteFile(large+ext, bytes.Repeat([]byte("large"), n/5+1), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	format := []string{"--format", "tar", "--shard-size", "128KiB"}
	run(t, append([]string{"pack", src, local}, format...)).want(t, 0, "samples   31")
	run(t, append([]string{"pack", src, "s3://box/packed"}, format...), keys).want(t, 0, "samples   31", "verified  yes")
	run(t, []string{"unpack", "s3://box/packed", "s3://box/raw/"}, keys).want(t, 0, "samples   31",
		"equal their checksums")
	run(t, append([]string{"pack", "s3://box/raw", filepath.Join(t.TempDir(), "x")}, format...), keys).want(t, 0,
		"samples   31")
	run(t, append([]string{"pack", "s3://box/raw", "s3://box/again"}, format...), keys).want(t, 0, "samples   31")
	run(t, []string{"unpack", "s3://box/again", back}, keys).want(t, 0, "samples   31")
	equalFolders(t, back, src, ".nebulaio-")
	down := t.TempDir()
	for o := range m.ListObjects(t.Context(), "box", minio.ListObjectsOptions{Prefix: "packed/", Recursive: true}) {
		if err := m.FGetObject(t.Context(), "box", o.Key, filepath.Join(down, filepath.Base(o.Key)),
			minio.GetObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	equalFolders(t, down, local, "")
	run(t, append([]string{"pack", src, "s3://box/packed"}, format...), keys).want(t, 0, "complete already")
	run(t, append([]string{"pack", src, "s3://box/packed", "--shuffle", "1"}, format...), keys).want(t, 2, "shuffle",
		"--restart")
	run(t, append([]string{"pack", src, "s3://box/packed", "--shuffle", "1", "--restart"}, format...), keys).want(t, 0)
	run(t, append([]string{"pack", "s3://box/raw", "s3://box/raw/x"}, format...), keys).want(t, 2, "inside of its source")
	run(t, append([]string{"pack", "s3://box/nothing", local}, format...), keys).want(t, 3, "s3://box/nothing")
	run(t, append([]string{"pack", "s3://none/nothing", local}, format...), keys).want(t, 3, "s3://none")
	run(t, append([]string{"pack", "s3:///", local}, format...), keys).want(t, 2, "names no bucket")
	if code := p.stop(os.Interrupt); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
}

// TestKilledPacks kills the program at random moments while it packs, and runs it again. All packs are equal byte by
// byte.
func TestKilledPacks(t *testing.T) {
	effort.Slow(t)
	kills := effort.Rounds{Test: 2, CI: 6, Long: 50}.Of(t)
	files := effort.Rounds{Test: 1000, CI: 2000, Long: 20_000}.Of(t)
	most := 1<<10 + effort.Rounds{Test: 3 << 10, CI: 3 << 10, Long: 63 << 10}.Of(t) // bytes of the largest file
	seed := uint64(effort.Number(t, "NEBULAIO_CRASH_SEED", int(time.Now().UnixNano())))
	t.Logf("NEBULAIO_CRASH_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	src, whole := sampleFiles(t, files, 1<<10, most), filepath.Join(t.TempDir(), "whole")
	command := func(out string) *exec.Cmd {
		cmd := exec.Command(program, "pack", src, out, "--format", "tar", "--shard-size", strconv.Itoa(files*most/40),
			"--json")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
		return cmd
	}
	finish := func(out string) packJSON {
		t.Helper()
		b, err := command(out).CombinedOutput()
		var v packJSON
		if err != nil || json.Unmarshal(b, &v) != nil {
			t.Fatalf("%v: %s", err, b)
		}
		return v
	}
	began := time.Now()
	shards := finish(whole).Shards
	took := time.Since(began)
	killed, ended, resumed := 0, 0, 0
	for killed < kills && ended < 10*kills {
		out := filepath.Join(t.TempDir(), "out")
		cmd := command(out)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		over := make(chan error)
		go func() { over <- cmd.Wait() }()
		// One kill comes after some time, the next one after some files are there: each shard has three and a record.
		after, files := time.Duration(rng.Int64N(int64(took))), 1<<30
		if killed%2 == 1 {
			after, files = patience, 1+rng.IntN(4*shards)
		}
		if killedWhen(cmd, over, out, time.Now().Add(after), files) {
			killed++
		} else {
			ended++
		}
		if v := finish(out); v.Resumed > 0 && !v.Complete {
			resumed++
		}
		if equalFolders(t, out, whole, ""); t.Failed() {
			t.Fatal("a killed pack differs")
		}
		os.RemoveAll(out)
	}
	t.Logf("%d runs were killed, %d went on after finished shards; %d runs ended before their kill; a whole run takes %s",
		killed, resumed, ended, took.Round(time.Millisecond))
	if killed < kills {
		t.Errorf("only %d of %d runs were killed", killed, kills)
	}
}

// TestPackText packs text with a tokenizer, and compares the tokens with those of the tokenizer itself.
func TestPackText(t *testing.T) {
	dir := t.TempDir()
	src, out := filepath.Join(dir, "src"), filepath.Join(dir, "out")
	texts := []string{"Hello world, this is the first document.\n", "The second: naïve café, 你好!\n"}
	if err := os.Mkdir(src, 0o700); err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		if err := os.WriteFile(filepath.Join(src, fmt.Sprintf("%d.txt", i)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const tokenizer = "../data/tokens/testdata/gpt2.json"
	run(t, []string{"pack", src, out, "--format", "bin", "--tokenizer", tokenizer, "--append-eod", "<|endoftext|>"}).
		want(t, 0, "samples   2")
	know, err := tokens.Open(tokenizer, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	eod, ok := know.ID("<|endoftext|>")
	if !ok {
		t.Fatal("the tokenizer has no end of a document")
	}
	var want []byte
	for _, text := range texts {
		ids, err := know.Encode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range append(ids, eod) {
			want = binary.LittleEndian.AppendUint16(want, uint16(id))
		}
	}
	bins, err := filepath.Glob(filepath.Join(out, "*.bin"))
	if err != nil || len(bins) != 1 {
		t.Fatalf("files %v, %v", bins, err)
	}
	if got, err := os.ReadFile(bins[0]); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of tokens, expected %d; %v", len(got), len(want), err)
	}
	other := []string{"pack", src, filepath.Join(dir, "other"), "--format", "bin", "--tokenizer"}
	run(t, append(other, filepath.Join(dir, "none.json"))).want(t, 3, "none.json")
	run(t, append(other, "pack_test.go")).want(t, 5, "pack_test.go")
	run(t, append(other, tokenizer, "--append-eod", "no such token")).want(t, 2, "no such token")
}

// killedWhen kills a program at a time, or when a folder has so many files. The result is false if the program ends
// before.
func killedWhen(cmd *exec.Cmd, over <-chan error, folder string, at time.Time, files int) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-over:
			return err != nil
		case now := <-tick.C:
			if there, _ := os.ReadDir(folder); now.After(at) || len(there) >= files {
				_ = cmd.Process.Kill()
				return <-over != nil
			}
		}
	}
}

// TestInterruptPack interrupts a pack and goes on with it.
func TestInterruptPack(t *testing.T) {
	src, out, back := sampleFiles(t, 600, 100, 9000), filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "back")
	args := []string{"pack", src, out, "--format", "tfrecord", "--shard-size", "64KiB"}
	past := func(done int64) bool { return done > 1<<20 }
	run(t, args, interruptWhen(os.Interrupt, past)).want(t, 130, "nebulaio: pack "+out+": interrupted by SIGINT\n",
		"fix: run the same command again")
	run(t, args).want(t, 0, "resumed", "of an earlier run", "samples   300")
	undo := []string{"unpack", out, back}
	run(t, undo, interruptWhen(os.Interrupt, underWay)).want(t, 130, "nebulaio: unpack "+back+": interrupted by SIGINT\n")
	run(t, undo).want(t, 0, "samples   300")
	equalFolders(t, back, src, ".nebulaio-")
}
