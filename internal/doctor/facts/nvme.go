// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/binary"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Health is the SMART health log of an NVMe drive.
type Health struct {
	Critical       int    `json:"critical"` // bits of the drive's critical warning; 0 means healthy
	Spare          int    `json:"spare"`    // spare capacity of the drive that is left, in percent
	SpareThreshold int    `json:"spare_threshold"`
	Used           int    `json:"used"` // used share of the drive's rated life in percent; may exceed 100
	MediaErrors    uint64 `json:"media_errors"`
	HotMinutes     uint32 `json:"hot_minutes"` // minutes that the drive was above the warning temperature
}

// The SMART log and the command that reads it, of the NVM Express specification
// and linux/nvme_ioctl.h.
const (
	smartBytes   = 512
	adminIoctl   = 0xc0484e41
	adminBytes   = 72
	getLogPage   = 0x02
	smartLog     = 0x02
	everyNS      = 0xffffffff
	adminTimeout = 1000 // milliseconds
)

// parseSMART parses a SMART log. It returns false if the log is truncated.
func parseSMART(b []byte) (Health, bool) {
	if len(b) < smartBytes {
		return Health{}, false
	}
	h := Health{Critical: int(b[0]), Spare: int(b[3]), SpareThreshold: int(b[4]), Used: int(b[5]),
		MediaErrors: binary.LittleEndian.Uint64(b[160:]), HotMinutes: binary.LittleEndian.Uint32(b[192:])}
	return h, true
}

// health reads the SMART log of a controller, which only root may do. It returns nil if the controller does not
// answer. The command touches no data.
func health(controller string) *Health {
	f, err := os.OpenFile("/dev/"+controller, os.O_RDONLY, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	log, cmd := make([]byte, smartBytes), make([]byte, adminBytes)
	cmd[0] = getLogPage
	binary.NativeEndian.PutUint32(cmd[4:], everyNS)
	// The kernel follows this address while the call runs.
	var pin runtime.Pinner
	pin.Pin(&log[0])
	defer pin.Unpin()
	binary.NativeEndian.PutUint64(cmd[24:], uint64(uintptr(unsafe.Pointer(&log[0]))))
	binary.NativeEndian.PutUint32(cmd[36:], smartBytes)
	binary.NativeEndian.PutUint32(cmd[40:], smartLog|(smartBytes/4-1)<<16)
	binary.NativeEndian.PutUint32(cmd[64:], adminTimeout)
	if r, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), adminIoctl, uintptr(unsafe.Pointer(&cmd[0]))); e != 0 || r != 0 {
		return nil
	}
	if h, ok := parseSMART(log); ok {
		return &h
	}
	return nil
}

// drives reads the health of the NVMe controllers under the target, if the user is root.
func (m *Meta) drives(t Tree) {
	if m.UID != 0 || m.Target == nil {
		return
	}
	for _, d := range Gather(t, *m, -1).Disks {
		if d.Kind != "nvme" {
			continue
		}
		if h := health(d.Controller()); h != nil {
			if m.NVMe == nil {
				m.NVMe = map[string]Health{}
			}
			m.NVMe[d.Controller()] = *h
		}
	}
}
