// SPDX-License-Identifier: Apache-2.0

package target

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/test/nobody"
)

// sleeper is a process of this user.
func sleeper(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func TestReadOfARealProcess(t *testing.T) {
	pid := sleeper(t)
	p, err := Read(Tree{}, pid)
	if err != nil {
		t.Fatal(err)
	}
	if p.PID != pid || p.UID != os.Getuid() || p.CUDA || p.Threads != 1 || p.Resident <= 0 || p.Started == 0 ||
		!strings.HasPrefix(p.Shown(), strconv.Itoa(pid)+" (") {
		t.Errorf("%+v", p)
	}
	if !Same(Tree{}, p) || Resident(Tree{}, pid) <= 0 {
		t.Error("the process is not found again")
	}
	other := *p
	other.Started++
	if Same(Tree{}, &other) {
		t.Error("another process with the same id is taken for it")
	}
	if free, by, err := FreeMemory(Tree{}, pid); free <= 0 || by == "" || err != nil {
		t.Errorf("%d, %s, %v", free, by, err)
	}
}

func TestReadOfAnEndedProcess(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	p := &Process{PID: cmd.Process.Pid, Started: 1}
	if _, err := Read(Tree{}, p.PID); !errs.Is(err, errs.NotFound) || errs.FixOf(err) == "" {
		t.Errorf("%v", err)
	}
	if Same(Tree{}, p) || Resident(Tree{}, p.PID) != 0 {
		t.Error("an ended process is found")
	}
	// A process that has ended and was not waited for.
	zombie := exec.Command("true")
	out, err := zombie.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err == nil {
		t.Error("true has written something")
	}
	// The descriptors of a process are closed a little before it is a zombie.
	for range 1_000_000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", zombie.Process.Pid))
		if err != nil || ended(stat) {
			break
		}
	}
	if _, err := Read(Tree{}, zombie.Process.Pid); !errs.Is(err, errs.NotFound) ||
		!strings.Contains(err.Error(), "zombie") {
		t.Errorf("%v", err)
	}
	if err := zombie.Wait(); err != nil {
		t.Error(err)
	}
}

// TestReadOfAnotherUser reads a process of root as nobody.
func TestReadOfAnotherUser(t *testing.T) {
	const variable = "NEBULAIO_TEST_TARGET"
	if text := os.Getenv(variable); text != "" {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Read(Tree{}, pid); !errs.Is(err, errs.Permission) || !strings.Contains(err.Error(), "root") ||
			!strings.Contains(errs.FixOf(err), "run the command as root") {
			t.Errorf("%v", err)
		}
		return
	}
	cmd, _ := nobody.Command(t, "TestReadOfAnotherUser")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", variable, sleeper(t)))
	nobody.Run(t, cmd, "TestReadOfAnotherUser")
}

func TestMappings(t *testing.T) {
	var p Process
	err := p.parseMaps(strings.NewReader(strings.Join([]string{
		"7f0000000000-7f0000010000 r-xp 00000000 08:01 99                         /usr/lib/libcuda.so.1",
		"200000000-200200000 rw-s 00000000 00:06 533                              /dev/nvidia-uvm",
		"300000000-300200000 ---s 00000000 00:06 533                              /dev/nvidia-uvm",
		"7f1000000000-7f1000001000 rw-s 00000000 00:19 5                          /dev/shm/cuda.shm.0.1.1 (deleted)",
		"7f1000001000-7f1000002000 rw-s 00000000 00:19 5                          /dev/shm/cuda.shm.0.1.1 (deleted)",
		"7f1000000000-7f1000001000 rw-s 00000000 00:19 5                          /dev/shm/nccl-Ab c",
		"7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]",
		"7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 ",
		"nonsense", "9-1 rw-p 0 0:0 0 /dev/nvidia-uvm", "",
	}, "\n")))
	if err != nil || !p.CUDA || p.Managed != 2<<20 || len(p.IPC) != 1 || p.IPC[0] != "/dev/shm/cuda.shm.0.1.1" ||
		len(p.NCCL) != 1 || p.NCCL[0] != "/dev/shm/nccl-Ab c" {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestMemoryOfCgroups(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tree := Tree{Proc: filepath.Join(root, "proc"), Sys: filepath.Join(root, "sys")}
	want := func(bytes int64, limit string) {
		t.Helper()
		if free, by, err := FreeMemory(tree, 7); free != bytes || !strings.Contains(by, limit) || err != nil {
			t.Errorf("%d, %q, %v; expected %d by %s", free, by, err, bytes, limit)
		}
	}
	if _, _, err := FreeMemory(tree, 7); !errs.Is(err, errs.NotFound) {
		t.Errorf("%v", err)
	}
	write("proc/meminfo", "MemTotal: 4096 kB\n")
	if _, _, err := FreeMemory(tree, 7); !errs.Is(err, errs.Unsupported) {
		t.Errorf("%v", err)
	}
	write("proc/meminfo", "MemTotal: 4096 kB\nMemAvailable:    2048 kB\n")
	want(2<<20, "machine")
	write("proc/7/cgroup", "1:name=x:/y\n0::/a/b\n")
	want(2<<20, "machine")
	write("sys/fs/cgroup/a/b/memory.max", "max\n")
	write("sys/fs/cgroup/a/b/memory.current", "100\n")
	want(2<<20, "machine")
	write("sys/fs/cgroup/a/memory.max", "1000000\n")
	write("sys/fs/cgroup/a/memory.current", "900000\n")
	want(100000, "/a")
	write("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 50000\n")
	want(150000, "/a")
}

func TestUsingCUDA(t *testing.T) {
	if all := UsingCUDA(Tree{Proc: filepath.Join(t.TempDir(), "none")}); all != nil {
		t.Errorf("%v", all)
	}
	pid := sleeper(t)
	for _, p := range UsingCUDA(Tree{}) {
		if p.PID == pid {
			t.Error("sleep uses no GPU")
		}
	}
}

func FuzzMaps(f *testing.F) {
	f.Add("7f0000000000-7f0000010000 r-xp 00000000 08:01 99 /usr/lib/libcuda.so.1\n", "Name:\tx\nVmRSS:\t1 kB\n",
		"1 (a) S 1")
	f.Fuzz(func(t *testing.T, maps, status, stat string) {
		var p Process
		_ = p.parseMaps(strings.NewReader(maps)) // a line may be too long
		_ = p.parseStatus([]byte(status))        // it may be a zombie
		_, _ = parseStarted([]byte(stat))        // it may have no start
		_ = ended([]byte(stat))
		if p.Managed < 0 || p.Resident < 0 || len(p.IPC) > mostNames || len(p.NCCL) > mostNames {
			t.Errorf("%+v", p)
		}
	})
}
