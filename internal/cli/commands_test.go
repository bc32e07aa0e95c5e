// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio"
)

func TestInspect(t *testing.T) {
	path := tinyModel(t)
	run(t, []string{"inspect", path}).want(t, 0, "file      "+path+"\n", "size      9.48 KiB (9711 bytes)\n",
		"data      from byte 3936, aligned to 32\n",
		"tensors   54\n", "metadata  format = pt\n", "\nname ",
		"\nbool.scalar         BOOL         []         9710     1          2\n",
		"info: the data starts at byte 3936", `info: tensor "u8.empty": `,
		"total 54 tensors, 2063 elements, 5.64 KiB (5775 bytes)\n", "\ndtype ", "\nF64                2        92  736 B\n")

	v := decode[inspectJSON](t, run(t, []string{"inspect", path, "--json"}))
	if len(v.Files) != 1 || v.Index != "" || v.Totals.Tensors != 54 || v.Totals.Bytes != 5775 {
		t.Fatalf("%+v", v)
	}
	f := v.Files[0]
	if f.Size != 9711 || f.DataStart != 3936 || f.Alignment != 32 || len(f.Tensors) != 54 ||
		f.Metadata["format"] != "pt" || len(f.Problems) != 4 {
		t.Errorf("%+v", f)
	}
	if last := f.Tensors[53]; last.Name != "bool.scalar" || last.Offset != 9710 || last.Alignment != 2 || last.Size != 1 {
		t.Errorf("%+v", last)
	}
}

func TestInspectSharded(t *testing.T) {
	dir, files := shardedModel(t)
	v := decode[inspectJSON](t, run(t, []string{"inspect", dir, "--json"}))
	if len(v.Files) != len(files) || v.Index != filepath.Join(dir, "model.safetensors.index.json") ||
		v.Totals.Tensors != 54 {
		t.Errorf("%d files of %d, index %q, %d tensors", len(v.Files), len(files), v.Index, v.Totals.Tensors)
	}
	run(t, []string{"inspect", dir}).want(t, 0, "index     "+v.Index, files[0].Path, files[len(files)-1].Path)
}

// TestInspectNames: long names stay whole, and a name cannot steer a terminal.
func TestInspectNames(t *testing.T) {
	long := strings.Repeat("layer.", 500)
	header := fmt.Sprintf(`{"__metadata__":{"k\u0007":"v\n"},"%s":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u001b[2Jbad":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, long)
	r := run(t, []string{"inspect", writeFile(t, "names.safetensors", rawModel(header, 2))})
	r.want(t, 0, "\n"+long+" ", `\x1b[2Jbad`, `k\a = v\n`)
	if strings.ContainsAny(r.out, "\x1b\a") {
		t.Error("a control character reached the output")
	}
}

func TestDevices(t *testing.T) {
	run(t, []string{"devices", "--devices", "off"}).want(t, 0,
		"gpu       none: GPUs were not looked for: the mode is off\n  fix: use mode auto or require\n", "device    host (")
	r := run(t, []string{"devices", "--json"})
	r.want(t, 0)
	s := decode[nebulaio.Survey](t, r)
	if n := len(s.Devices); n == 0 || s.Devices[n-1].ID != "host" || s.Mode != nebulaio.DevicesAuto {
		t.Fatalf("%+v", s)
	}
	if s.NoGPU != "" {
		run(t, []string{"devices"}).want(t, 0, "gpu       none: ", "\n  fix: ", "looked for", "missing, needed")
		run(t, []string{"devices", "--devices", "require"}).want(t, 9, "require a GPU: ", "\n  fix: ")
		run(t, []string{"load", tinyModel(t), "--devices", "require"}).want(t, 9, "require a GPU: ")
		return
	}
	run(t, []string{"devices", "--devices", "require"}).want(t, 0, "device    cuda:0 (")
}

func TestSurveyText(t *testing.T) {
	var b bytes.Buffer
	printSurvey(&b, nebulaio.Survey{Mode: nebulaio.DevicesAuto,
		Findings: []nebulaio.Finding{{Name: "libcuda.so.1", Found: true, Detail: "/usr/lib/libcuda.so.1", Needed: true},
			{Name: "libnvidia-ml.so.1", Detail: "not found", Fix: "install it"}},
		Devices: []nebulaio.DeviceInfo{
			{ID: "cuda:0", Kind: nebulaio.CUDADevice, Model: "NVIDIA H200", UUID: "GPU-1", PCI: "0000:01:00.0", NUMANode: 1,
				TotalMemory: 1 << 37, Driver: "570.1", Facts: map[string]string{"pcie": "5 x16", "bar1": "256 GiB"}},
			{ID: "host", Kind: nebulaio.HostDevice, Model: "host memory", NUMANode: -1},
		}})
	const want = `gpu       1 GPU usable
mode      auto

looked for         result   detail
libcuda.so.1       found    /usr/lib/libcuda.so.1
libnvidia-ml.so.1  missing  not found
  fix for libnvidia-ml.so.1: install it

device    cuda:0 (NVIDIA H200)
  kind                    cuda
  memory                  128.00 GiB
  uuid                    GPU-1
  pci                     0000:01:00.0
  numa node               1
  driver                  570.1
  bar1                    256 GiB
  pcie                    5 x16

device    host (host memory)
  kind                    host
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

func TestGenerate(t *testing.T) {
	dir := t.TempDir()
	one, two, other := filepath.Join(dir, "one"), filepath.Join(dir, "two"), filepath.Join(dir, "other")
	r := run(t, []string{"generate", "--shapes", "tiny", "--out", one, "--seed", "7", "--align", "4KiB"})
	r.want(t, 0, one, "wrote 9.64 KiB (9871 bytes) in 1 file, 54 tensors, of tiny with seed 7, in ")
	v := decode[generatedJSON](t, run(t, []string{"generate", "--shapes", "tiny", "--out", two, "--seed", "7", "--align",
		"4096", "--json"}))
	if v.Path != two || v.Tensors != 54 || v.Seed != 7 || len(v.Files) != 1 || v.Files[0].DataStart != 4096 {
		t.Errorf("%+v", v)
	}
	run(t, []string{"generate", "--shapes", "tiny", "--out", other, "--seed", "8", "--align", "4096"}).want(t, 0)
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if !bytes.Equal(read(one), read(two)) || bytes.Equal(read(one), read(other)) {
		t.Error("content does not follow the seed")
	}
	shards := filepath.Join(dir, "shards")
	v = decode[generatedJSON](t, run(t, []string{"generate", "--shapes", "tiny", "--out", shards, "--shard-size", "2KiB",
		"--json"}))
	if len(v.Files) < 3 {
		t.Errorf("%d shards", len(v.Files))
	}
	run(t, []string{"load", shards, "--device", "host"}).want(t, 0, "tensors   54 in ")
	run(t, []string{"generate", "--shapes", "tiny", "--out", filepath.Join(dir, "no", "such", "x")}).want(t, 3, "no/such")
}

func TestGenerateProgress(t *testing.T) {
	r := run(t, []string{"generate", "--shapes", "tiny", "--out", filepath.Join(t.TempDir(), "x")}, terminal)
	if r.code != 0 || !strings.HasPrefix(r.stderr, "\r0 B of ") || !strings.HasSuffix(r.stderr, " \r") {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
}

func TestGenerateList(t *testing.T) {
	run(t, []string{"generate", "--list"}).want(t, 0, "name        tensors       size\n",
		"qwen3-0.6b      311   1.40 GiB\n")
	v := decode[struct{ Shapes []shapesJSON }](t, run(t, []string{"generate", "--list", "--json"}))
	if len(v.Shapes) != 3 || v.Shapes[2] != (shapesJSON{"tiny", 54, 5775}) {
		t.Errorf("%+v", v)
	}
}

func TestVersion(t *testing.T) {
	run(t, []string{"version"}).want(t, 0, "version   nebulaio "+nebulaio.Version(),
		"go        "+runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH)
	v := decode[map[string]any](t, run(t, []string{"version", "--json"}))
	if v["version"] != nebulaio.Version() || v["go"] != runtime.Version() || v["os"] != runtime.GOOS ||
		v["arch"] != runtime.GOARCH {
		t.Errorf("%v", v)
	}
}

func TestVersionRevision(t *testing.T) {
	setting := func(k, v string) debug.BuildSetting { return debug.BuildSetting{Key: k, Value: v} }
	v := readVersion(func() (*debug.BuildInfo, bool) {
		return &debug.BuildInfo{Settings: []debug.BuildSetting{setting("vcs.revision", "abc"),
			setting("vcs.time", "2030-01-02T03:04:05Z"), setting("vcs.modified", "true")}}, true
	})
	var b bytes.Buffer
	v.print(&b)
	if !strings.HasSuffix(b.String(), "revision  abc of 2030-01-02T03:04:05Z, modified\n") {
		t.Error(b.String())
	}
	b.Reset()
	readVersion(func() (*debug.BuildInfo, bool) { return nil, false }).print(&b)
	if !strings.HasSuffix(b.String(), "revision  unknown: built outside of version control\n") {
		t.Error(b.String())
	}
}
