// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/uring"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// Meta has the facts about a machine that no file under /proc or /sys contains.
type Meta struct {
	Kernel string `json:"kernel"` // kernel release, as uname -r prints it
	Arch   string `json:"arch"`   // machine architecture, as uname -m prints it
	CPUs   int    `json:"cpus"`
	UID    int    `json:"uid"` // effective user ID

	// CuFileJSON is the environment variable CUFILE_ENV_PATH_JSON, or "" if it is not set.
	CuFileJSON string `json:"cufile_env_path_json,omitempty"`
	// CuFileEnv has the environment variables that override cufile.json.
	CuFileEnv map[string]string `json:"cufile_env,omitempty"`
	// P2PSymbol tells whether the kernel has the symbols of P2PDMA: "yes", "no", or the reason why the symbols could
	// not be searched.
	P2PSymbol string `json:"p2p_symbol"`
	// NVFSHooks lists the kernel symbols through which storage drivers register with nvidia-fs. The list NVFSHooks is
	// complete if P2PSymbol is "yes" or "no".
	NVFSHooks []string `json:"nvfs_hooks,omitempty"`
	// IOUring is "ok", or the reason why an io_uring could not be created.
	IOUring string `json:"io_uring"`

	// Memlock is the limit of locked memory in bytes, and NoFile the limit of open files. -1 means unlimited.
	Memlock int64 `json:"memlock"`
	NoFile  int64 `json:"nofile"`
	// SHM is the size of /dev/shm in bytes, or 0 if there is no /dev/shm.
	SHM int64 `json:"shm"`

	// Clock is the state of the kernel's clock, or nil if it was not read.
	Clock *Clock `json:"clock,omitempty"`

	// NVMe has the health of the NVMe drives that store the target, by controller. Only root may read the health of
	// NVMe drives, so the map is empty for other users.
	NVMe map[string]Health `json:"nvme,omitempty"`

	Target *Target        `json:"target,omitempty"` // the diagnosed path; nil if no path was given
	Survey *device.Survey `json:"survey,omitempty"` // GPUs and libraries; nil if the GPUs were not queried
	Proof  *Proof         `json:"proof,omitempty"`  // result of reading through cuFile; nil if no proof was tried
}

// Clock is the state of the kernel's clock as adjtimex(2) reports it.
type Clock struct {
	Synchronised bool  `json:"synchronised"` // true if an external time source adjusts the clock
	OffsetUS     int64 `json:"offset_us"`    // last correction of the clock in microseconds
	MaxErrorUS   int64 `json:"max_error_us"`
}

// Target describes the diagnosed path.
type Target struct {
	Path  string `json:"path"` // absolute path of the target, without symbolic links
	Dir   bool   `json:"dir"`
	Major uint32 `json:"major"` // major number of the file system's device
	Minor uint32 `json:"minor"`

	Size      int64 `json:"size"`
	Allocated int64 `json:"allocated"`
	Total     int64 `json:"total"` // size of the file system in bytes
	Available int64 `json:"available"`

	// DirectMem and DirectOffset are the alignments in bytes that O_DIRECT needs for memory and for offsets.
	// DirectMem and DirectOffset are both 0 if the file refuses O_DIRECT, and both -1 if the kernel does not tell.
	DirectMem    int64 `json:"direct_mem"`
	DirectOffset int64 `json:"direct_offset"`
	// DirectRead is "ok" if an O_DIRECT read of the target succeeded, else the reason why not.
	DirectRead string `json:"direct_read"`

	// Layout describes how the target file is stored on its disk; nil if unknown.
	Layout *Layout `json:"layout,omitempty"`
	// Stripe describes the striping of a file on Lustre; nil on other file systems.
	Stripe *Stripe `json:"stripe,omitempty"`
}

// Look gathers the facts in Meta from the running machine. The parameter target is the path to diagnose and may be
// empty. Look reads at most one block of the target, queries its extents, and creates and closes one io_uring. If the
// process runs as root, Look also reads the health log of the NVMe drives that store the target. Look does not set
// Meta.Survey and Meta.Proof; the caller sets them. If the target cannot be examined, the error has the kind NotFound
// or Permission.
func Look(target string, env func(string) string) (Meta, error) {
	m := basics(env)
	m.IOUring = tryRing()
	m.P2PSymbol, m.NVFSHooks = symbols()
	m.Memlock, m.NoFile = limit(unix.RLIMIT_MEMLOCK), limit(unix.RLIMIT_NOFILE)
	var fs unix.Statfs_t
	if unix.Statfs("/dev/shm", &fs) == nil {
		m.SHM = int64(fs.Blocks) * int64(fs.Bsize)
	}
	m.Clock = clock()
	if target == "" {
		return m, nil
	}
	t, mode, err := lookAt(target)
	if err == nil {
		t.DirectRead = tryDirect(t, mode)
		if mode&unix.S_IFMT == unix.S_IFREG {
			t.Layout, t.Stripe = layout(t.Path, t.Size), stripe(t.Path)
		}
	}
	m.Target = t
	m.drives(Live())
	return m, err
}

// Glance gathers the facts of Look that cost almost no time. Glance reads no block of the target, queries no drive
// and does not search the kernel's symbols. Glance does not set Meta.Survey; the caller sets it. Errors of Glance
// have the kind NotFound or Permission, as those of Look do.
func Glance(target string, env func(string) string) (Meta, error) {
	m := basics(env)
	m.IOUring, m.P2PSymbol = "not tried", "its symbols were not searched"
	t, _, err := lookAt(target)
	if err == nil {
		t.DirectRead = "not tried: a glance reads nothing"
	}
	m.Target = t
	return m, err
}

// basics returns the facts that cost nothing to read.
func basics(env func(string) string) Meta {
	m := Meta{CPUs: runtime.NumCPU(), UID: os.Geteuid(), CuFileJSON: env("CUFILE_ENV_PATH_JSON")}
	for _, name := range []string{"CUFILE_ALLOW_COMPAT_MODE", "CUFILE_FORCE_COMPAT_MODE", "CUFILE_USE_PCIP2PDMA"} {
		if v := env(name); v != "" {
			if m.CuFileEnv == nil {
				m.CuFileEnv = map[string]string{}
			}
			m.CuFileEnv[name] = v
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel, m.Arch = unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:])
	}
	return m
}

func limit(which int) int64 {
	var r unix.Rlimit
	if unix.Getrlimit(which, &r) != nil || r.Cur > 1<<62 {
		return -1
	}
	return int64(r.Cur)
}

func clock() *Clock {
	var t unix.Timex // modes 0 only asks
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return nil
	}
	const timeError = 5
	c := &Clock{Synchronised: state != timeError && t.Status&unix.STA_UNSYNC == 0, OffsetUS: int64(t.Offset),
		MaxErrorUS: int64(t.Maxerror)}
	if t.Status&unix.STA_NANO != 0 {
		c.OffsetUS /= 1000
	}
	return c
}

func tryRing() string {
	r, err := uring.New(1)
	if err != nil {
		return err.Error()
	}
	_ = r.Close() // it was never used
	return "ok"
}

// symbols reads the kernel's symbol list, which is larger than any file that a Tree returns.
func symbols() (p2p string, hooks []string) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return err.Error(), nil
	}
	defer f.Close()
	p2p = "/proc/kallsyms is empty"
	for s := bufio.NewScanner(f); s.Scan(); {
		if p2p != "yes" {
			p2p = "no"
		}
		line := s.Text()
		if strings.Contains(line, "p2pdma_pgmap_ops") || strings.Contains(line, "pci_p2pdma_add_resource") {
			p2p = "yes"
		}
		// A line is address, type, name and perhaps [module].
		if w := strings.Fields(line); len(w) > 2 && strings.HasSuffix(w[2], "_register_nvfs_dma_ops") && len(hooks) < 64 {
			hooks = append(hooks, w[2])
		}
	}
	return p2p, hooks
}

// lookAt queries the kernel about the target, and reads no data of it.
func lookAt(target string) (*Target, uint16, error) {
	full, err := filepath.Abs(target)
	if err == nil {
		full, err = filepath.EvalSymlinks(full)
	}
	if err != nil {
		return nil, 0, errs.Wrap("look at", target, err)
	}
	var st unix.Statx_t
	const statxDIOAlign = 0x2000
	if err := unix.Statx(unix.AT_FDCWD, full, 0, unix.STATX_BASIC_STATS|statxDIOAlign, &st); err != nil {
		return nil, 0, errs.Wrap("look at", target, err)
	}
	t := &Target{Path: full, Dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, Major: st.Dev_major, Minor: st.Dev_minor,
		Size: int64(st.Size), Allocated: int64(st.Blocks) * 512, DirectMem: -1, DirectOffset: -1}
	if st.Mask&statxDIOAlign != 0 {
		t.DirectMem, t.DirectOffset = int64(st.Dio_mem_align), int64(st.Dio_offset_align)
	}
	var fs unix.Statfs_t
	if unix.Statfs(full, &fs) == nil {
		t.Total, t.Available = int64(fs.Blocks)*int64(fs.Bsize), int64(fs.Bavail)*int64(fs.Bsize)
	}
	return t, st.Mode, nil
}

// tryDirect performs one O_DIRECT read with the code that the loader uses.
func tryDirect(t *Target, mode uint16) string {
	switch {
	case t.Dir:
		return "not tried: a directory; give a file for a real read"
	case mode&unix.S_IFMT != unix.S_IFREG:
		return "not tried: not a regular file"
	case t.Size == 0:
		return "not tried: the file is empty"
	}
	f, err := vfs.Open(t.Path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if ok, why := f.Direct(); !ok {
		return "refused: " + why.Reason
	}
	align := max(f.Align().Offset, f.Align().Memory, 4096)
	buf, err := unix.Mmap(-1, 0, int(align), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = unix.Munmap(buf) }()
	if err := f.ReadDirect(buf, 0, int(min(t.Size, align))); err != nil {
		var e *errs.Error
		if errors.As(err, &e) && e.Msg != "" {
			return e.Msg
		}
		return err.Error()
	}
	return "ok"
}
