// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	procs "github.com/nebulaio/nebulaio/internal/process"
	"github.com/nebulaio/nebulaio/test/holder"
)

// onFake makes a command use the fake driver.
func onFake(g *fakegpu.GPU) func(*World) {
	return func(w *World) { w.CUDALibrary, w.NVMLLibrary = g.CUDA, g.NVML }
}

func TestProcessSuspendAndResume(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	h := holder.Start(t, g.CUDA)
	pid := fmt.Sprint(h.PID)
	g.Process(h.PID, 0, 5<<20)
	fake := onFake(g)
	run(t, []string{"process", "status", pid}, fake).want(t, 0, "process   "+pid+" (holder), user ", "state     running\n",
		"driver    999.1.2 (CUDA 13.0)\n", "gpu       5.00 MiB of cuda:0, which uses 9.00 MiB of 1.00 GiB\n",
		"of host memory")
	run(t, []string{"process", "suspend", pid}, fake).want(t, 0, "state     suspended\n", "gpu       5.00 MiB freed, ",
		"before    5.00 MiB of cuda:0", "after     0 B of cuda:0, which uses 4.00 MiB", "lock ", "checkpoint ")
	run(t, []string{"process", "status", pid}, fake).want(t, 0, "state     suspended\n", "gpu       0 B of cuda:0")
	run(t, []string{"process", "suspend", pid}, fake).want(t, 2, "suspended already",
		"fix: resume it: nebulaio process resume "+pid)
	r := run(t, []string{"process", "resume", pid, "--json"}, fake)
	r.want(t, 0)
	if v := decode[procs.Report](t, r); v.State != "running" || v.GPUBytes != 5<<20 || v.Op != "resume" ||
		v.PID != h.PID ||
		len(v.Steps) != 2 {
		t.Errorf("%+v", v)
	}
	run(t, []string{"process", "resume", pid}, fake).want(t, 2, "not suspended")
	v := decode[procs.Status](t, run(t, []string{"process", "status", pid, "--json"}, fake))
	if v.PID != h.PID || v.State != "running" || !v.CUDA || v.RestoreThread != h.PID+1 || v.FreeMemory <= 0 {
		t.Errorf("%+v", v)
	}
	// The progress names the steps on a terminal.
	shown := run(t, []string{"process", "suspend", pid}, fake, terminal)
	if shown.code != 0 || !strings.Contains(shown.stderr, "looking at process "+pid) ||
		!strings.HasSuffix(shown.stderr, " \r") {
		t.Errorf("%d, %q", shown.code, shown.stderr)
	}
	run(t, []string{"process", "resume", pid, "--device-map", "cuda:0=GPU-10101010-1010-1010-1010-101010101010"}, fake).
		want(t, 0, "state     running\n", "gpu       5.00 MiB taken")
	g.Fail("cuCheckpointProcessCheckpoint", 0, 1, fakegpu.NotSupported)
	run(t, []string{"process", "suspend", pid}, fake).want(t, 9, "the process runs on as before", "IPC")
}

func TestProcessToStorage(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{DriverVersion: 13040})
	h := holder.Start(t, g.CUDA)
	pid, file := fmt.Sprint(h.PID), filepath.Join(t.TempDir(), "gpu.safetensors")
	copy(g.Process(h.PID, 0, 5<<20), "content")
	fake := onFake(g)
	run(t, []string{"process", "suspend", pid, "--to", file}, fake).want(t, 0, "file      "+file+"\n",
		"state     suspended\n")
	run(t, []string{"inspect", file}).want(t, 0, "region-00")
	run(t, []string{"process", "resume", pid, "--from", file}, fake).want(t, 0, "state     running\n")
	if !strings.HasPrefix(string(g.ProcessMemory(h.PID, 0)), "content") {
		t.Error("the content is wrong")
	}
	old := fakegpu.Build(t, fakegpu.Options{})
	old.Process(h.PID, 0, 4096)
	run(t, []string{"process", "suspend", pid, "--to", file}, onFake(old)).want(t, 9, "13.4", "leave out --to")
	g.CheckFreed()
}

func TestProcessRefusals(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	fake := onFake(g)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	dead := fmt.Sprint(gone.Process.Pid)
	for _, op := range []string{"suspend", "resume", "status"} {
		run(t, []string{"process", op, dead}, fake).want(t, 3, "process "+dead+": there is no such process")
		run(t, []string{"process", op}, fake).want(t, 2, "0 arguments given; expected the id of one process")
		run(t, []string{"process", op, "1", "2"}, fake).want(t, 2, "2 arguments given")
		for _, bad := range []string{"x", "0", "1.5", ""} {
			run(t, []string{"process", op, bad}, fake).want(t, 2, "is not a process id; expected a number of 1 or more")
		}
		run(t, []string{"process", op, fmt.Sprint(os.Getpid())}, fake).want(t, 2, "this command itself")
	}
	h := holder.Start(t, "")
	plain := fmt.Sprint(h.PID)
	run(t, []string{"process", "suspend", plain}, fake).want(t, 9, "it does not use CUDA")
	run(t, []string{"process", "status", plain}, fake).want(t, 0, "state     unknown: suspend process "+plain)
	old := fakegpu.Build(t, fakegpu.Options{DriverVersion: 12040, Without: []string{"cuCheckpointProcessLock"}})
	with := holder.Start(t, old.CUDA)
	run(t, []string{"process", "suspend", fmt.Sprint(with.PID)}, onFake(old)).want(t, 9, "lacks cuCheckpointProcessLock",
		"fix: install NVIDIA driver 570")
	run(t, []string{"process", "status", fmt.Sprint(with.PID)}, onFake(old)).want(t, 0, "state     unknown: ",
		"lacks cuCheckpointProcessLock")
	for _, bad := range []string{"cuda:0", "cuda:0=cuda:7", "x=cuda:0", "GPU-12=GPU-34", "="} {
		run(t, []string{"process", "resume", plain, "--device-map", bad}, fake).want(t, 2, "--device-map", "expected OLD=NEW")
	}
	run(t, []string{"process", "dump", plain}, fake).want(t, 2,
		"1 arguments given; expected the id of a process, and a folder")
	run(t, []string{"process", "dump", plain, "gs://a/b"}, fake).want(t, 2, "expected a folder or s3://BUCKET/KEY")
	run(t, []string{"process", "dump", "x", "dir"}, fake).want(t, 2, "is not a process id")
	run(t, []string{"process", "restore"}, fake).want(t, 2, "no path given")
	none := filepath.Join(t.TempDir(), "criu")
	run(t, []string{"process", "dump", plain, t.TempDir(), "--criu", none}, fake).want(t, 9, "criu is not installed",
		"fix: install it: apt install criu")
	run(t, []string{"process", "restore", t.TempDir(), "--criu", none}, fake).want(t, 9, "criu is not installed")
	if got := h.Ask(); got[0] != "1" {
		t.Errorf("%q", got)
	}
}

// An interrupt puts the process back.
func TestProcessInterrupted(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	h := holder.Start(t, g.CUDA)
	pid := fmt.Sprint(h.PID)
	g.Process(h.PID, 0, 5<<20)
	g.HoldCall("cuCheckpointProcessCheckpoint")
	r := run(t, []string{"process", "suspend", pid}, onFake(g), func(w *World) {
		w.Notify = func(c chan<- os.Signal) func() {
			heard := make(chan struct{})
			go func() {
				g.AwaitHeld()
				c <- os.Interrupt
				<-heard
				g.ReleaseCall()
			}()
			var once sync.Once
			return func() { once.Do(func() { close(heard) }) }
		}
	})
	r.want(t, 130, "interrupted by SIGINT: the process runs on as before")
	run(t, []string{"process", "status", pid}, onFake(g)).want(t, 0, "state     running\n")

	plain, folder := holder.Start(t, ""), filepath.Join(t.TempDir(), "dump")
	r = run(t, []string{"process", "dump", fmt.Sprint(plain.PID), folder, "--criu", holder.CRIU(t)},
		interruptWhen(os.Interrupt, underWay))
	r.want(t, 130, "interrupted by SIGINT: the process runs on as before, and there is no image")
	if _, err := os.Stat(folder); err == nil {
		t.Error("a folder is left")
	}
	if got := plain.Ask(); got[0] != "1" {
		t.Errorf("%q", got)
	}
}

// A process is dumped to a bucket of a real server and restored from it, by the door and over HTTP.
func TestProcessDumpToABucket(t *testing.T) {
	tool := holder.CRIU(t)
	socket := filepath.Join(t.TempDir(), "door.sock")
	p := startServer(t, filepath.Join(t.TempDir(), "store"),
		[]string{"NEBULAIO_ROOT_USER=cli-user", "NEBULAIO_ROOT_PASSWORD=cli-password-1",
			"NEBULAIO_GPUDIRECT_ENABLED=true", "NEBULAIO_GPUDIRECT_SOCKET=" + socket})
	m, err := minio.New(strings.TrimPrefix(p.Endpoint, "http://"),
		&minio.Options{Creds: credentials.NewStaticV4("cli-user", "cli-password-1", ""), Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.MakeBucket(t.Context(), "dumps", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	keys := env(map[string]string{"NEBULAIO_ENDPOINT": p.Endpoint, "NEBULAIO_ACCESS_KEY": "cli-user",
		"NEBULAIO_SECRET_KEY": "cli-password-1", "NEBULAIO_CRIU": tool})
	h := holder.Start(t, "")
	before := h.Ask()
	pid := fmt.Sprint(h.PID)
	run(t, []string{"process", "dump", pid, "s3://nothing/job"}, keys).want(t, 3, "nothing")
	run(t, []string{"process", "dump", pid, "s3://dumps/job"}, env(map[string]string{"NEBULAIO_CRIU": tool,
		"NEBULAIO_ENDPOINT": "http://127.0.0.1:1"})).want(t, 6, "127.0.0.1:1")
	log := filepath.Join(t.TempDir(), "log")
	run(t, []string{"process", "dump", pid, "s3://dumps/job", "--log", log, "--", "--no-such-option"}, keys).want(t, 1,
		"the process runs on as before, and there is no image")
	if text, err := os.ReadFile(log); err != nil || !strings.Contains(string(text), "no-such-option") {
		t.Errorf("%q, %v", text, err)
	}
	for o := range m.ListObjects(t.Context(), "dumps", minio.ListObjectsOptions{Recursive: true}) {
		t.Errorf("an object is left: %s", o.Key)
	}
	for i, door := range []string{"require", "off"} {
		run(t, []string{"process", "dump", pid, "s3://dumps/job"}, keys).want(t, 0, "process   "+pid+" (holder)\n",
			"state     ended\n", "image     s3://dumps/job\n", "memory pages", "end ")
		h.Reap()
		run(t, []string{"process", "restore", "s3://dumps/job", "--door", door}, keys).want(t, 0, "state     running\n",
			"verified  all checksums")
		if got := h.Ask(); got[0] != fmt.Sprint(i+2) || got[1] != before[1] {
			t.Errorf("%q, before the dump %q", got, before)
		}
	}
	h.Kill()
	// A flipped bit in the object makes no process.
	object, err := m.GetObject(t.Context(), "dumps", "job", minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	local := filepath.Join(t.TempDir(), "job")
	copied, err := os.Create(local)
	if err != nil {
		t.Fatal(err)
	}
	size, err := copied.ReadFrom(object)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := copied.ReadAt(b, size/2); err != nil {
		t.Fatal(err)
	}
	if _, err := copied.WriteAt([]byte{b[0] ^ 8}, size/2); err != nil {
		t.Fatal(err)
	}
	if err := copied.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.FPutObject(t.Context(), "dumps", "bad/process.nebulaio", local, minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, door := range []string{"require", "off"} {
		run(t, []string{"process", "restore", "s3://dumps/bad/", "--door", door}, keys).want(t, 5,
			"is damaged: its checksum differs")
	}
	run(t, []string{"process", "restore", "s3://dumps/none"}, keys).want(t, 3, "there is no image")
	if h.Alive() {
		t.Error("a process was made")
	}
	if code := p.stop(os.Interrupt); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
}
