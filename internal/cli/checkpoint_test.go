// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/nebulaio/nebulaio"
)

// checkpointAt saves a checkpoint with one tensor of 40,000 bytes to a path or URL.
func checkpointAt(t *testing.T, sys *nebulaio.System, path string, step int, client nebulaio.ClientOptions) {
	t.Helper()
	id := fmt.Sprintf("%016x", step)
	name := "__0_0_" + id + ".distcp"
	if !strings.Contains(path, "://") {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r, err := sys.Save(t.Context(), path+"/"+name, []nebulaio.SaveTensor{{Name: "w", DType: "U8", Shape: []int64{40_000},
		Bytes: make([]byte, 40_000)}}, nebulaio.SaveOptions{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	m, err := json.Marshal(map[string]any{"id": id, "step": step, "world": 1,
		"files": []any{map[string]any{"name": name, "size": r.Bytes}},
		"items": []any{map[string]any{"tensor": "model.w", "offset": 4096, "size": 40_000, "dtype": "U8"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sys.CommitCheckpoint(t.Context(), path, nebulaio.CheckpointCommitOptions{Manifest: m,
		Metadata: []byte("metadata"), Client: client}); err != nil {
		t.Fatal(err)
	}
}

func checkpointSystem(t *testing.T) *nebulaio.System {
	t.Helper()
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sys.Close() })
	return sys
}

func TestCheckpointCommands(t *testing.T) {
	sys, root := checkpointSystem(t), t.TempDir()
	at := func(step int) string { return filepath.Join(root, fmt.Sprintf("step-%010d", step)) }
	for step := 1; step <= 4; step++ {
		checkpointAt(t, sys, at(step), step, nebulaio.ClientOptions{})
	}
	if err := os.MkdirAll(at(5), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at(5), "__0_0.distcp"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}

	r := run(t, []string{"checkpoint", "list", root})
	r.want(t, 0, "step-0000000004", "nebulaio", "yes", "43.06 KiB")
	if strings.Contains(r.out, "step-0000000005") {
		t.Errorf("a checkpoint that is not complete is listed:\n%s", r.out)
	}
	run(t, []string{"checkpoint", "list", root, "--all"}).want(t, 0, "step-0000000005",
		"no: .metadata: there is no .metadata")
	j := decode[checkpointsJSON](t, run(t, []string{"checkpoint", "list", root, "--json"}))
	if len(j.Checkpoints) != 4 || j.Latest != at(4) || *j.Checkpoints[0].Step != 1 || !j.Checkpoints[0].Complete {
		t.Errorf("%+v", j)
	}
	run(t, []string{"checkpoint", "list", filepath.Join(root, "none")}).want(t, 3, "none")
	run(t, []string{"checkpoint", "list", t.TempDir()}).want(t, 0, "there are no complete checkpoints")

	run(t, []string{"checkpoint", "verify", at(4)}).want(t, 0, "verdict   good", "step 4, world 1")
	v := decode[nebulaio.CheckpointVerification](t, run(t, []string{"checkpoint", "verify", at(4), "--json"}))
	if v.Verdict != "good" || v.Read != v.Bytes || v.Name != "." {
		t.Errorf("%+v", v)
	}
	run(t, []string{"checkpoint", "verify", root}).want(t, 3, "there is no checkpoint", "nebulaio checkpoint list")

	run(t, []string{"checkpoint", "prune", root}).want(t, 2, "neither --keep-last nor --keep-every")
	run(t, []string{"checkpoint", "prune", root, "--keep-last", "0"}).want(t, 2, "--keep-last", "1 or more")
	run(t, []string{"checkpoint", "prune", root, "--keep-last", "1", "--dry-run"}).want(t, 0, "3 checkpoints to remove",
		"2 kept", "a save may be running")
	p := decode[nebulaio.CheckpointPruning](t,
		run(t, []string{"checkpoint", "prune", root, "--keep-last", "1", "--keep-every", "2", "--json"}))
	if len(p.Removed) != 2 || p.Removed[0].Name != "step-0000000001" || p.Removed[1].Name != "step-0000000003" ||
		p.Bytes == 0 {
		t.Errorf("%+v", p)
	}
	run(t, []string{"checkpoint", "prune", root, "--keep-last", "1"}).want(t, 0, "1 checkpoint removed", "2 kept")
	run(t, []string{"checkpoint", "list", root}).want(t, 0, "step-0000000004")
}

// TestCheckpointVerdicts: the exit code tells what is wrong with a checkpoint.
func TestCheckpointVerdicts(t *testing.T) {
	sys, root := checkpointSystem(t), t.TempDir()
	data := "__0_0_" + fmt.Sprintf("%016x", 1) + ".distcp"
	for _, x := range []struct {
		name, text string
		code       int
		do         func(dir string) error
	}{
		{"damaged", "model.w", 5, func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, data))
			if err != nil {
				return err
			}
			b[20_000] ^= 4
			return os.WriteFile(filepath.Join(dir, data), b, 0o644)
		}},
		{"missing", "the file is missing", 3, func(dir string) error { return os.Remove(filepath.Join(dir, data)) }},
	} {
		dir := filepath.Join(root, x.name)
		checkpointAt(t, sys, dir, 1, nebulaio.ClientOptions{})
		if err := x.do(dir); err != nil {
			t.Fatal(err)
		}
		r := run(t, []string{"checkpoint", "verify", dir})
		if r.code != x.code || !strings.Contains(r.out, x.text) || !strings.Contains(r.out, data) {
			t.Errorf("%s: exit code %d\n%s%s", x.name, r.code, r.out, r.stderr)
		}
	}
	stock := filepath.Join(root, "stock")
	if err := os.MkdirAll(stock, 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("../checkpoint/testdata/stock.metadata")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{".metadata": b, "__0_0.distcp": make([]byte, 9644)} {
		if err := os.WriteFile(filepath.Join(stock, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := run(t, []string{"checkpoint", "verify", stock})
	if r.code != exitNoChecksums || !strings.Contains(r.out, "verdict   no checksums") ||
		!strings.Contains(r.out, "__0_0.distcp has no checksums") {
		t.Errorf("exit code %d\n%s", r.code, r.out)
	}
}

// TestCheckpointsOfABucket runs the commands on a prefix of a bucket.
func TestCheckpointsOfABucket(t *testing.T) {
	p := startServer(t, filepath.Join(t.TempDir(), "store"),
		[]string{"NEBULAIO_ROOT_USER=cli-user", "NEBULAIO_ROOT_PASSWORD=cli-password-1"})
	m, err := minio.New(strings.TrimPrefix(p.Endpoint, "http://"),
		&minio.Options{Creds: credentials.NewStaticV4("cli-user", "cli-password-1", ""), Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.MakeBucket(t.Context(), "box", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	client := nebulaio.ClientOptions{Endpoint: p.Endpoint, AccessKey: "cli-user", SecretKey: "cli-password-1"}
	keys := env(map[string]string{"NEBULAIO_ENDPOINT": p.Endpoint, "NEBULAIO_ACCESS_KEY": "cli-user",
		"NEBULAIO_SECRET_KEY": "cli-password-1"})
	sys := checkpointSystem(t)
	for step := 1; step <= 2; step++ {
		checkpointAt(t, sys, fmt.Sprintf("s3://box/run/step-%010d", step), step, client)
	}
	run(t, []string{"checkpoint", "list", "s3://box/run"}, keys).want(t, 0, "step-0000000001", "step-0000000002")
	run(t, []string{"checkpoint", "verify", "s3://box/run/step-0000000002"}, keys).want(t, 0, "verdict   good")
	run(t, []string{"checkpoint", "prune", "s3://box/run", "--keep-last", "1"}, keys).want(t, 0, "1 checkpoint removed")
	run(t, []string{"checkpoint", "list", "s3://box/run/step-0000000001"}, keys).want(t, 3, "no objects")
}
