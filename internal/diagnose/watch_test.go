// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/bottleneck"
)

// Numbers of the processes in the tests: this program, the command, and a child of the command.
const (
	self, root, child = 10, 20, 30
)

// tree is a made-up /proc.
type tree struct {
	t   *testing.T
	dir string
}

func newTree(t *testing.T) tree {
	t.Helper()
	tr := tree{t, t.TempDir()}
	for _, pid := range []int{self, root, child} {
		tr.write(fmt.Sprintf("%d/task/%d/children", pid, pid), "")
		tr.thread(pid, pid, 'S', "do_wait", 0)
		tr.write(fmt.Sprintf("%d/stat", pid), stat('S', 0))
	}
	tr.write(fmt.Sprintf("%d/task/%d/children", self, self), fmt.Sprint(root, " "))
	tr.write(fmt.Sprintf("%d/task/%d/children", root, root), fmt.Sprint(child, " "))
	return tr
}

func (tr tree) write(name, text string) {
	tr.t.Helper()
	path := filepath.Join(tr.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr tree) link(name, to string) {
	tr.t.Helper()
	path := filepath.Join(tr.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.Symlink(to, path); err != nil {
		tr.t.Fatal(err)
	}
}

// stat is the file stat of a process with a hostile name.
func stat(state byte, ticks int) string {
	return fmt.Sprintf("1 (a) R (b) %c 1 1 1 0 -1 4194560 1 2 3 4 %d %d 5 7 20 0 1 0 100 0 0\n", state, ticks, ticks/2)
}

func (tr tree) thread(pid, tid int, state byte, place string, busy time.Duration) {
	base := fmt.Sprintf("%d/task/%d/", pid, tid)
	tr.write(base+"stat", stat(state, 0))
	tr.write(base+"wchan", place)
	tr.write(base+"schedstat", fmt.Sprintf("%d 0 9\n", busy.Nanoseconds()))
}

// tcp is a list of one TCP socket.
func tcp(state, queued string, inode int) string {
	return "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		fmt.Sprintf("   0: 0100007F:2328 0100007F:C000 %s %s:00000000 01:00000014 00000000     0        0 %d 2 0 20 4\n",
			state, queued, inode)
}

// watched looks ten times at a tree, which change alters before each look, and returns the window.
func watched(tr tree, change func(look int)) (*watch, bottleneck.Window) {
	w := newWatch(tr.dir, root, self)
	at := time.Unix(1000, 0)
	for look := range 11 {
		if change != nil {
			change(look)
		}
		w.look(at)
		at = at.Add(100 * time.Millisecond)
	}
	var out bottleneck.Window
	w.fill(&out, 1, 0, 0, 4)
	return w, out
}

func TestWaitsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		make             func(tr tree) func(look int)
		storage, network float64
		busiest          float64
	}{
		"idle": {func(tree) func(int) { return nil }, 0, 0, 0},
		"a child waits for a disk": {func(tr tree) func(int) {
			tr.thread(child, child, 'D', "blk_io_schedule", 0)
			return nil
		}, 1, 0, 0},
		"a thread waits for a disk half of the time": {func(tr tree) func(int) {
			return func(look int) { tr.thread(child, 31, "SD"[look%2], "0", 0) }
		}, 0.5, 0, 0},
		"a ring of the kernel has no completion": {func(tr tree) func(int) {
			tr.thread(root, root, 'S', "io_cqring_wait", 0)
			return nil
		}, 1, 0, 0},
		"a parent waits for vfork": {func(tr tree) func(int) {
			tr.thread(root, root, 'D', "wait_for_vfork_done", 0)
			return nil
		}, 0, 0, 0},
		"a thread is busy": {func(tr tree) func(int) {
			return func(look int) {
				tr.thread(child, child, 'R', "0", time.Duration(look)*80*time.Millisecond)
				tr.thread(root, root, 'R', "0", time.Duration(look)*20*time.Millisecond)
			}
		}, 0, 0, 0.8},
		"a socket does not get rid of its bytes": {func(tr tree) func(int) {
			tr.link("30/fd/5", "socket:[4711]")
			tr.link("30/ns/net", "net:[1]")
			tr.write("30/net/tcp", tcp("01", "00001000", 4711))
			return nil
		}, 0, 1, 0},
		"a socket of IPv6 does not get rid of its bytes": {func(tr tree) func(int) {
			tr.link("20/fd/5", "socket:[4711]")
			tr.link("20/ns/net", "net:[2]")
			tr.write("20/net/tcp6", tcp("01", "00001000", 4711))
			return nil
		}, 0, 1, 0},
		"a socket that opens in the middle": {func(tr tree) func(int) {
			tr.link("30/ns/net", "net:[1]")
			tr.write("30/net/tcp", tcp("01", "00001000", 4711))
			return func(look int) {
				if look == 6 {
					tr.link("30/fd/5", "socket:[4711]")
				}
			}
		}, 0, 0.5, 0},
		"a socket has sent all": {func(tr tree) func(int) {
			tr.link("30/fd/5", "socket:[4711]")
			tr.write("30/net/tcp", tcp("01", "00000000", 4711))
			return nil
		}, 0, 0, 0},
		"a listening socket has connections": {func(tr tree) func(int) {
			tr.link("30/fd/5", "socket:[4711]")
			tr.write("30/net/tcp", tcp("0A", "00001000", 4711))
			return nil
		}, 0, 0, 0},
		"a socket of another program": {func(tr tree) func(int) {
			tr.link("30/fd/5", "socket:[4712]")
			tr.write("30/net/tcp", tcp("01", "00001000", 4711))
			return nil
		}, 0, 0, 0},
		"a thread waits for data that comes slowly": {func(tr tree) func(int) {
			tr.thread(child, child, 'S', "wait_woken", 0)
			return func(look int) {
				tr.write("20/net/dev", dev("eth0", look*100_000))
				tr.write("30/net/dev", dev("eth0", look*100_000))
			}
		}, 0, 1, 0},
		"a thread waits for data that comes over loopback": {func(tr tree) func(int) {
			tr.thread(child, child, 'S', "wait_woken", 0)
			return func(look int) { tr.write("30/net/dev", dev("lo", look*100_000)) }
		}, 0, 0, 0},
		"a thread waits for data that does not come": {func(tr tree) func(int) {
			tr.thread(child, child, 'S', "wait_woken", 0)
			return nil
		}, 0, 0, 0},
		"a thread polls while another computes": {func(tr tree) func(int) {
			tr.thread(child, child, 'S', "ep_poll", 0)
			tr.thread(child, 31, 'R', "0", 0)
			return func(look int) { tr.write("30/net/dev", dev("eth0", look*100_000)) }
		}, 0, 0, 0},
	} {
		tr := newTree(t)
		_, got := watched(tr, c.make(tr))
		near := func(a, b float64) bool { return a > b-0.11 && a < b+0.11 }
		if !near(got.Waits.Storage, c.storage) || !near(got.Waits.Network, c.network) || !near(got.CPU.Busiest, c.busiest) ||
			got.Waits.Looks != 11 {
			t.Errorf("%s: storage %.2f, network %.2f, busiest %.2f of %d looks", name, got.Waits.Storage, got.Waits.Network,
				got.CPU.Busiest, got.Waits.Looks)
		}
	}
}

// Time in which other programs have the processors changes no share, and is a figure of its own.
func TestOtherProgramsDoNotChangeTheShares(t *testing.T) {
	tr := newTree(t)
	_, got := watched(tr, func(look int) {
		state := byte('R')
		if look%4 == 0 {
			state = 'D'
		}
		tr.thread(child, child, state, "0", 0)
		// In each 100 ms, the thread runs for 10, waits for a disk for 25 and is ready for the rest.
		tr.write("30/task/30/schedstat", fmt.Sprintf("%d %d 9\n", look*10_000_000, look*65_000_000))
	})
	if got.CPU.Starved < 0.64 || got.CPU.Starved > 0.66 || got.CPU.Busiest < 0.27 || got.CPU.Busiest > 0.3 ||
		got.Waits.Storage < 0.5 || got.Waits.Storage > 0.75 {
		t.Errorf("%+v %+v", got.CPU, got.Waits)
	}
	if v := bottleneck.Judge(got); v.Bound != bottleneck.Storage {
		t.Errorf("%s because %s", v.Bound, v.Why)
	}
}

func dev(name string, bytes int) string {
	return "Inter-|   Receive\n face |bytes\n" + fmt.Sprintf("  %s: %d 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n", name, bytes)
}

func TestBytesAndTimesOfAllProcessesAreAdded(t *testing.T) {
	tr := newTree(t)
	for _, pid := range []int{root, child} {
		tr.write(fmt.Sprintf("%d/stat", pid), stat('S', 100))
		tr.write(fmt.Sprintf("%d/io", pid),
			"rchar: 3000000000\nwchar: 1\nread_bytes: 1000000000\nwrite_bytes: 500000000\nodd\n")
	}
	tr.write("20/cgroup", "12:cpu,cpuacct:/job/a\n7:memory:/other\n0::/slice/b\n")
	w, got := watched(tr, func(look int) {
		if look == 8 { // the child has ended, and the command has not waited for it yet
			if err := os.RemoveAll(filepath.Join(tr.dir, "30")); err != nil {
				t.Fatal(err)
			}
		}
	})
	if got.Waits.ReadGBps != 2 || got.Waits.WriteGBps != 1 || got.Memory.HitGBps != 4 || got.CPU.Usable != 4 {
		t.Errorf("%+v %+v %+v", got.Waits, got.Memory, got.CPU)
	}
	// Each process has 100 ticks and 5 of ended children in programs, and 50 and 7 in the kernel.
	if got.CPU.Used < 3.23 || got.CPU.Used > 3.25 || got.CPU.Kernel < 1.13 || got.CPU.Kernel > 1.15 {
		t.Errorf("%+v", got.CPU)
	}
	if text := strings.Join(w.groups, " "); text != "/job/a /job /slice/b /slice" {
		t.Errorf("groups %q", text)
	}
}

// A process whose parent has ended belongs to the command: this program has adopted it.
func TestAdoptedProcessesBelongToTheCommand(t *testing.T) {
	tr := newTree(t)
	tr.write(fmt.Sprintf("%d/task/%d/children", root, root), "")
	tr.write(fmt.Sprintf("%d/task/%d/children", self, self), fmt.Sprint(root, " ", child))
	tr.thread(child, child, 'D', "0", 0)
	if _, got := watched(tr, nil); got.Waits.Storage < 0.9 {
		t.Errorf("%+v", got.Waits)
	}
	w := newWatch(tr.dir, root, self)
	w.others[child] = true // it was there before the command
	if all := w.processes(); len(all) != 1 || all[0] != root {
		t.Errorf("%v", all)
	}
}

func FuzzProc(f *testing.F) {
	f.Add([]byte(stat('D', 7)), uint64(4711))
	f.Add([]byte(tcp("01", "00001000", 4711)), uint64(4711))
	f.Add([]byte("rchar: 1\nread_bytes: 18446744073709551615\n"), uint64(1))
	f.Add([]byte(dev("eth0", 7)), uint64(1))
	f.Add([]byte("12:cpu:/a/../../b\n0::/x\n"), uint64(0))
	f.Fuzz(func(t *testing.T, text []byte, inode uint64) {
		if s, ok := parseStat(text); ok && s.parent < 0 {
			t.Errorf("%+v", s)
		}
		parseSchedstat(text)
		parseIO(text)
		received(text)
		for _, group := range groupsOf(text) {
			if !strings.HasPrefix(group, "/") || group == "/" {
				t.Errorf("group %q", group)
			}
		}
		n := network{inodes: map[uint64]bool{inode: true}}
		if mine, waits := n.find(text); waits && !mine {
			t.Error("a socket that is not there waits")
		}
	})
}
