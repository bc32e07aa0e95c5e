// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"path"
	"strconv"
	"strings"
)

// NIC is an active (up) network interface of a PCI device.
type NIC struct {
	Name, BDF string
	Mbit, MTU int64 // speed in Mbit/s, 0 or less if the driver does not report it; MTU in bytes
}

// NICs lists the active (up) network interfaces of PCI devices.
func (f *Facts) NICs() []NIC {
	var out []NIC
	for _, dir := range f.Glob("/sys/class/net", "*") {
		state, _ := f.Text(dir + "/operstate")
		real, err := f.Resolve(dir)
		if err != nil || state != "up" || LastBDF(real) == "" {
			continue
		}
		n := NIC{Name: path.Base(dir), BDF: LastBDF(real)}
		n.Mbit, _ = f.Integer(dir + "/speed")
		n.MTU, _ = f.Integer(dir + "/mtu")
		out = append(out, n)
	}
	return out
}

// RDMAUp lists the active RDMA ports as device/port.
func (f *Facts) RDMAUp() []string {
	var out []string
	for _, dev := range f.Glob("/sys/class/infiniband", "*") {
		for _, port := range f.Glob(dev+"/ports", "*") {
			if s, _ := f.Text(port + "/state"); strings.Contains(s, "ACTIVE") {
				out = append(out, path.Base(dev)+"/"+path.Base(port))
			}
		}
	}
	return out
}

// Mellanox lists the PCI functions that use the mlx5 driver. The list of loaded modules does not show whether there
// is an mlx5 card, because the driver may be built into the kernel.
func (f *Facts) Mellanox() []string {
	var out []string
	for _, p := range f.Glob("/sys/bus/pci/drivers/mlx5_core", "*") {
		if IsBDF(path.Base(p)) {
			out = append(out, path.Base(p))
		}
	}
	return out
}

// NFS reports whether the target is on an NFS mount.
func (f *Facts) NFS() bool {
	return f.Mount != nil && (f.Mount.FSType == "nfs" || f.Mount.FSType == "nfs4")
}

// EFS reports whether the target is on Amazon EFS, mounted by its host name or through a local TLS tunnel.
func (f *Facts) EFS() bool {
	if !f.NFS() {
		return false
	}
	host, _, _ := strings.Cut(f.Mount.Source, ":/")
	if strings.Contains(host, ".efs.") && strings.Contains(host, ".amazonaws.com") {
		return true
	}
	return f.Tunnelled() && f.Mount.Has("noresvport")
}

// Tunnelled reports whether the address of the NFS server is a loopback address, as with a local TLS tunnel.
func (f *Facts) Tunnelled() bool {
	addr, _ := f.Mount.Value("addr")
	host, _, _ := strings.Cut(f.Mount.Source, ":/")
	return strings.HasPrefix(addr, "127.") || strings.HasPrefix(host, "127.")
}

// NFSReads has the counters of read requests of an NFS mount since it was mounted.
type NFSReads struct {
	Ops, Sent    int64 // read requests, and transmissions of them including repeated ones
	Queue, Trip  int64 // total milliseconds of requests in the queue, and from sending to the reply
	HasTimes     bool
	Transmission bool // true if Ops and Sent were found
}

// ParseMountstats parses the READ line of one mount point in /proc/self/mountstats. NFSReads.Transmission is false if
// the mount point has no READ line.
func ParseMountstats(text, point string) NFSReads {
	var r NFSReads
	_, own, ok := strings.Cut(text, " mounted on "+point+" ")
	if !ok {
		return r
	}
	own, _, _ = strings.Cut(own, "\ndevice ")
	for line := range strings.Lines(own) {
		// READ: ops transmissions timeouts sent received queue rtt execute
		w := strings.Fields(line)
		if len(w) < 3 || w[0] != "READ:" {
			continue
		}
		var n [8]int64
		for i := range min(len(w)-1, len(n)) {
			v, err := strconv.ParseInt(w[i+1], 10, 64)
			if err != nil || v < 0 {
				return r
			}
			n[i] = v
		}
		return NFSReads{Ops: n[0], Sent: n[1], Queue: n[5], Trip: n[6], HasTimes: len(w) >= 9, Transmission: true}
	}
	return r
}

// LustreParams returns the values of one parameter of the Lustre client, by storage target. The parameter kind is the
// subsystem of the Lustre client, such as osc, and name is the parameter, such as max_rpcs_in_flight. The map is
// empty if the Lustre client shows no values. Newer Lustre clients have their parameters in sysfs, older ones in
// proc.
func (f *Facts) LustreParams(kind, name string) map[string]string {
	out := map[string]string{}
	for _, base := range []string{"/sys/fs/lustre/", "/proc/fs/lustre/", "/sys/kernel/debug/lustre/"} {
		for _, dir := range f.Glob(base+kind, "*") {
			if v, st := f.Text(dir + "/" + name); st == There && len(out) < 4096 {
				out[path.Base(dir)] = v
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return out
}
