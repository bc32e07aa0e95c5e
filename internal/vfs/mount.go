// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mount is one line of the mount table.
type mount struct {
	id                      uint64
	major, minor            uint32
	root, point, fs, source string
	options                 string // options of the file system
}

// findMount returns the mount through which the file was opened, or another mount of the same device. The result is
// empty if the mount table has neither.
func findMount(fd int, st *unix.Statx_t) mount {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return mount{}
	}
	var id uint64
	if st.Mask&unix.STATX_MNT_ID != 0 {
		id = st.Mnt_id
	} else {
		id = mountIDOf(fd)
	}
	return chooseMount(string(text), id, st.Dev_major, st.Dev_minor)
}

// mountIDOf reads the mount ID from fdinfo, for kernels before 5.8.
func mountIDOf(fd int) uint64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			id, _ := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
			return id
		}
	}
	return 0
}

// chooseMount finds a mount by its ID, else by its device.
func chooseMount(mountinfo string, id uint64, major, minor uint32) mount {
	var same mount
	for line := range strings.Lines(mountinfo) {
		m, ok := parseMount(line)
		switch {
		case !ok:
		case m.id == id:
			return m
		case m.major == major && m.minor == minor:
			same = m
		}
	}
	return same
}

// parseMount reads one line of /proc/self/mountinfo.
func parseMount(line string) (m mount, ok bool) {
	left, right, found := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
	a, b := strings.Fields(left), strings.Fields(right)
	if !found || len(a) < 5 || len(b) < 2 {
		return m, false
	}
	major, minor, _ := strings.Cut(a[2], ":")
	id, err1 := strconv.ParseUint(a[0], 10, 64)
	ma, err2 := strconv.ParseUint(major, 10, 32)
	mi, err3 := strconv.ParseUint(minor, 10, 32)
	if err1 != nil || err2 != nil || err3 != nil {
		return m, false
	}
	m = mount{id: id, major: uint32(ma), minor: uint32(mi), root: UnescapeMount(a[3]), point: UnescapeMount(a[4]),
		fs: b[0], source: UnescapeMount(b[1])}
	if len(b) > 2 {
		m.options = b[2]
	}
	return m, true
}

// UnescapeMount decodes the octal escapes in a field of the mount table; for example, \040 is a space.
func UnescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// overlayStorage finds the layer of overlayfs that holds the file, and returns the storage of this layer.
func overlayStorage(s Storage, fd int, m mount, st *unix.Statx_t, depth int) Storage {
	s.Falls, s.local = true, true
	s.Hidden = "the layers below overlayfs cannot be seen from here"
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	rel, inside := strings.CutPrefix(name, strings.TrimSuffix(m.point, "/"))
	if err != nil || !inside || strings.Contains(m.options, "metacopy=on") {
		return s
	}
	for _, layer := range layersOf(m.options) {
		below, err := unix.Open(filepath.Join(layer, m.root, rel), unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		var lower unix.Statx_t
		err = unix.Statx(below, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &lower)
		if err == nil && lower.Mode&unix.S_IFMT == unix.S_IFREG && lower.Size == st.Size && lower.Mtime == st.Mtime {
			found := storageOf(below, depth+1)
			s.Falls, s.Hidden = found.Falls, found.Hidden
			s.FS.Memory = found.FS.Memory
		}
		_ = unix.Close(below)
		return s // the uppermost file of this name is the one that is read
	}
	return s
}

// layersOf lists the directories of the layers of overlayfs, the uppermost first.
func layersOf(options string) []string {
	var upper, lower []string
	for _, o := range splitEscaped(options, ',') {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "upperdir":
			upper = append(upper, UnescapeMount(value))
		case "lowerdir", "lowerdir+":
			for _, l := range splitEscaped(value, ':') {
				if l != "" {
					lower = append(lower, UnescapeMount(l))
				}
			}
		}
	}
	return append(upper, lower...)
}

// splitEscaped splits s at sep. A separator behind a backslash does not split; the backslash is removed.
func splitEscaped(s string, sep byte) []string {
	var out []string
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && (s[i+1] == sep || s[i+1] == '\\'):
			i++
			b.WriteByte(s[i])
		case s[i] == sep:
			out = append(out, b.String())
			b.Reset()
		default:
			b.WriteByte(s[i])
		}
	}
	return append(out, b.String())
}

// ioctl calls the kernel with arg as the structure that it fills.
func ioctl(fd int, request uint, arg []byte) error {
	_, _, no := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(&arg[0])))
	if no != 0 {
		return no
	}
	return nil
}
