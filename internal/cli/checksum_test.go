// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/units"
)

func TestInspectChecksum(t *testing.T) {
	path := tinyModel(t)
	run(t, []string{"inspect", path, "--checksum"}).want(t, 0,
		"checksum  wrote "+path+".crc64nvme: 1 block of 1.00 MiB, in ")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := checksum.Read(path, int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Blocks) != 1 || s.Blocks[0] != checksum.Of(b) {
		t.Errorf("%+v", s)
	}
	if v := decode[inspectJSON](t, run(t, []string{"inspect", path, "--json"})); v.Files[0].Checksum != nil {
		t.Error("nothing was written, but the report says so")
	}
	run(t, []string{"inspect", writeFile(t, "bad.safetensors", []byte("short")), "--checksum"}).want(t, 5)
}

func TestInspectChecksumSharded(t *testing.T) {
	dir, files := shardedModel(t)
	// Twice: the second time there are sidecars in the directory, which are no
	// part of the model, and they are replaced.
	for range 2 {
		v := decode[inspectJSON](t, run(t, []string{"inspect", dir, "--checksum", "--json"}))
		if len(v.Files) != len(files) {
			t.Fatalf("%d files of %d", len(v.Files), len(files))
		}
		for _, f := range v.Files {
			if c := f.Checksum; c == nil || c.Path != f.Path+".crc64nvme" || c.Block != units.MiB || c.Blocks != 1 {
				t.Errorf("%+v", c)
			}
			if _, err := checksum.Read(f.Path, f.Size); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestInterruptChecksum(t *testing.T) {
	path := sparseModel(t, 64*units.MiB)
	r := run(t, []string{"inspect", path, "--checksum"}, interruptWhen(os.Interrupt, underWay))
	r.want(t, 130, "checksum "+path+": interrupted by SIGINT")
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// flip changes one bit of a file at that byte.
func flip(t *testing.T, path string, at int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLoadVerify(t *testing.T) {
	path := tinyModel(t)
	args := []string{"load", path, "--device", "host", "--verify"}
	remedy := "nebulaio inspect " + path + " --checksum"
	run(t, args).want(t, 3, "verify "+path+": has no checksums: "+path+".crc64nvme does not exist\n", "\n  fix: ", remedy)

	run(t, []string{"inspect", path, "--checksum"}).want(t, 0)
	run(t, args).want(t, 0, "verified  1 block, 9.48 KiB; 3.84 KiB read only for that; ",
		"note: verification needs every byte in the CPU's reach: ", "\nverify ", "\nread_extra ")
	for _, route := range []string{"buffered", "direct"} {
		if r := run(t, append(args, "--route", route, "--drop-cache")); r.code != 9 {
			r.want(t, 0, "verified  1 block, ")
		}
	}
	v := decode[loadsJSON](t, run(t, append(args, "--json", "--tensors", "bool.*"))).Loads[0]
	if v.Verify == nil || v.Verify.Bytes != 9711 || v.Verify.Extra != 9711-v.Bytes || v.Verify.Blocks != 1 {
		t.Errorf("%d bytes, %+v", v.Bytes, v.Verify)
	}
	if v := decode[loadsJSON](t, run(t, []string{"load", path, "--device", "host", "--json"})).Loads[0]; v.Verify != nil {
		t.Errorf("not asked for: %+v", v.Verify)
	}

	flip(t, path, 9710)
	run(t, args).want(t, 5, "verify "+path+": block 0, bytes 0 to 9711, differs from "+path+".crc64nvme: ",
		`it holds a part of the header, tensor "`, " more\n", remedy)
	run(t, []string{"load", path, "--device", "host"}).want(t, 0)
	flip(t, path, 9710)
	run(t, args).want(t, 0)

	s, err := checksum.Compute(t.Context(), path, 4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(path); err != nil {
		t.Fatal(err)
	}
	flip(t, path, 9710)
	// The last tensor alone lies in the last block; the headers' block is right.
	run(t, append(args, "--tensors", "bool.scalar")).want(t, 5, "block 2, bytes 8192 to 9711, ", "; it holds tensor ")
	run(t, append(args, "--tensors", "f64.*")).want(t, 0, "verified  ")
	flip(t, path, 9710)
}

// TestLoadVerifyStale: sums of another file, and sums that are damaged, are
// refused before anything is read.
func TestLoadVerifyStale(t *testing.T) {
	path := tinyModel(t)
	args := []string{"load", path, "--device", "host", "--verify"}
	if _, err := (&checksum.Sums{Size: 9712, Block: 1 << 20, Blocks: []uint64{1}}).Write(path); err != nil {
		t.Fatal(err)
	}
	run(t, args).want(t, 5, path+".crc64nvme is stale: it was made of 9712 bytes, the file has 9711", "\n  fix: ",
		"inspect "+path+" --checksum")
	run(t, []string{"inspect", path, "--checksum"}).want(t, 0)
	run(t, args).want(t, 0)
	flip(t, checksum.Path(path), 44)
	run(t, args).want(t, 5, "read checksums "+path+".crc64nvme: is damaged: its own checksum is ", "\n  fix: ")
	if err := os.Truncate(checksum.Path(path), 50); err != nil {
		t.Fatal(err)
	}
	run(t, args).want(t, 5, "is truncated", "\n  fix: ")
}

// TestLoadVerifySharded: one shard without checksums is one too many, and a
// header is checked though no tensor of its file is loaded.
func TestLoadVerifySharded(t *testing.T) {
	dir, files := shardedModel(t)
	args := []string{"load", dir, "--device", "host", "--verify"}
	run(t, []string{"inspect", dir, "--checksum"}).want(t, 0)
	v := decode[loadsJSON](t, run(t, append(args, "--json"))).Loads[0]
	if v.Verify == nil || v.Verify.Files != len(files) || v.Verify.Blocks != int64(len(files)) {
		t.Errorf("%+v", v.Verify)
	}
	last := files[len(files)-1]
	first := files[0].Tensors[0].Name
	flip(t, last.Path, last.Size-1)
	run(t, append(args, "--tensors", first)).want(t, 5, "verify "+last.Path+": block 0, ",
		"it holds a part of the header, tensor ")
	if err := os.Remove(checksum.Path(last.Path)); err != nil {
		t.Fatal(err)
	}
	run(t, args).want(t, 3, "verify "+last.Path+": has no checksums", "inspect "+last.Path+" --checksum")
}

func TestInterruptVerify(t *testing.T) {
	path := sparseModel(t, 64*units.MiB)
	run(t, []string{"inspect", path, "--checksum"}).want(t, 0)
	run(t, []string{"load", path, "--device", "host", "--verify"}, interruptWhen(os.Interrupt, atStart)).want(t, 130,
		"interrupted by SIGINT\n")
}
