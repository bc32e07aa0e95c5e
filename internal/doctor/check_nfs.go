// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/units"
)

func nfsChecks() []check {
	return []check{
		{"nfs.proto", nfsProto}, {"nfs.opts", nfsOpts}, {"nfs.efs", nfsEFS}, {"nfs.stats", nfsStats}, {"sunrpc",
			sunrpc}, {"lustre", lustre},
	}
}

const notNFS = "not on NFS"

// mountVars adds the values that a remount command needs.
func (f *exam) mountVars(a answer) answer {
	return a.with("mount", f.Mount.Point, "source", f.Mount.Source, "fstype", f.Mount.FSType)
}

// nfsProto checks the transport of an NFS mount. Over TCP no direct route exists: with a GPU this is a failure,
// without one it only costs speed.
func nfsProto(f *exam) []answer {
	if !f.NFS() {
		return skip(notNFS)
	}
	proto, _ := f.Mount.Value("proto")
	at, vers := quote(f.Mount.Point), "3"
	if v, ok := f.Mount.Value("vers"); ok && v != "" {
		vers = v
	}
	a := answer{level: Pass, subject: f.Mount.Point, observed: "proto=" + proto}.with(
		"now", "umount "+at+" && mount -t nfs -o vers="+quote(vers)+
			",proto=rdma,port=20049,nconnect=8,rsize=1048576,wsize=1048576,hard,noatime "+quote(f.Mount.Source)+" "+at,
		"boot", "# the same options for "+at+" in /etc/fstab; needs an RDMA card and server")
	up := f.RDMAUp()
	switch {
	case proto == "rdma":
		return []answer{a}
	case f.EFS():
		a.observed += ", and Amazon EFS offers no RDMA"
		a = a.with("now", "# no setting helps: put the data on local NVMe or on FSx for Lustre for the direct path", "boot",
			"")
	case len(up) > 0:
		a.observed += ", with an RDMA port active: " + strings.Join(up, ", ")
	default:
		a.observed += ", and no RDMA port is active"
		a.vars["now"] = "# without an RDMA card and server this mount has no direct path; with them: " + a.vars["now"]
	}
	switch {
	case f.GPU != nil:
		a.level = Fail
	case len(up) > 0 && !f.EFS():
		a.level = Warn
	default:
		a.level = Info
	}
	return []answer{a}
}

func nfsOpts(f *exam) []answer {
	switch {
	case !f.NFS():
		return skip(notNFS)
	case f.EFS():
		return skip("judged by nfs.efs")
	}
	var bad []string
	for _, name := range []string{"rsize", "wsize"} {
		v, _ := f.Mount.Value(name)
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n < f.whole("nfs.opts", "least") {
			bad = append(bad, name+"="+v)
		}
	}
	for _, name := range []string{"noac", "sync"} {
		if f.Mount.Has(name) {
			bad = append(bad, name)
		}
	}
	if v, ok := f.Mount.Value("actimeo"); ok && v == "0" {
		bad = append(bad, "actimeo=0")
	}
	if v, _ := f.Mount.Value("proto"); v != "rdma" {
		v, set := f.Mount.Value("nconnect")
		n, _ := strconv.ParseInt(v, 10, 64)
		for _, c := range f.NICs() {
			if c.Mbit >= f.whole("nfs.opts", "fast_mbit") && n < f.whole("nfs.opts", "nconnect") {
				if !set {
					v = "1"
				}
				bad = append(bad, fmt.Sprintf("nconnect=%s on %d Gbit/s (%s)", v, c.Mbit/1000, c.Name))
				break
			}
		}
	}
	a := f.mountVars(answer{level: Pass, subject: f.Mount.Point, observed: strings.Join(f.Mount.Super, ",")})
	a.vars["or"] = ""
	if proto, _ := f.Mount.Value("proto"); proto != "rdma" && len(f.RDMAUp()) > 0 {
		a.vars["or"] = "# the mount that nfs.proto asks for covers this; to stay on TCP: "
	}
	if bad != nil {
		a.level, a.observed = Warn, strings.Join(bad, ", ")
	}
	return []answer{a}
}

// nfsEFS judges the settings of Amazon EFS that the client shows. It also names the settings to ask the service for,
// which the client cannot see.
func nfsEFS(f *exam) []answer {
	if !f.EFS() {
		return skip("not on Amazon EFS")
	}
	var bad []string
	for _, name := range []string{"rsize", "wsize"} {
		v, _ := f.Mount.Value(name)
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n < f.whole("nfs.efs", "size") {
			bad = append(bad, name+"="+v)
		}
	}
	if !f.Mount.Has("noresvport") {
		bad = append(bad, "no noresvport: after a break the client may not come back")
	}
	var out []answer
	a := f.mountVars(answer{level: Pass, subject: f.Mount.Point, observed: "rsize, wsize and noresvport as recommended"})
	if bad != nil {
		a.level, a.observed = Warn, strings.Join(bad, ", ")
	}
	out = append(out, a)
	if f.Tunnelled() {
		out = append(out, answer{level: Info, subject: f.Mount.Point,
			observed: "through a TLS tunnel on this machine: one process encrypts every byte"})
	}
	id, _, _ := strings.Cut(f.Mount.Source, ".")
	if !strings.HasPrefix(id, "fs-") {
		id = "fs-ID"
	}
	mode := unknown(f.Mount.Source, "performance and throughput mode cannot be seen from the client",
		"aws efs describe-file-systems --file-system-id "+quote(id)+
			" --query 'FileSystems[0].[PerformanceMode,ThroughputMode]'")
	mode.vars["who"] = "anyone"
	return append(out, mode)
}

// nfsStats compares transmissions with operations of the mount's reads, and the wait for a slot with the round trip.
func nfsStats(f *exam) []answer {
	if !f.NFS() {
		return skip(notNFS)
	}
	s, _ := f.Text("/proc/self/mountstats")
	r := facts.ParseMountstats(s, f.Mount.Point)
	switch {
	case !r.Transmission:
		return skip("no statistics of this mount")
	case r.Ops <= 0:
		return skip("nothing was read from this mount yet")
	}
	text := fmt.Sprintf("%d of %d reads were sent again", max(r.Sent-r.Ops, 0), r.Ops)
	slow := r.HasTimes && r.Trip > 0 && float64(r.Queue) > float64(r.Trip)*f.num("nfs.stats", "backlog_ratio")
	if r.HasTimes && r.Trip > 0 {
		text += fmt.Sprintf("; a read waited %.1f ms for a slot, %.1f ms for its answer", float64(r.Queue)/float64(r.Ops),
			float64(r.Trip)/float64(r.Ops))
	}
	if slow || float64(r.Sent-r.Ops) > float64(r.Ops)*f.num("nfs.stats", "resent_ratio") {
		return one(Warn, f.Mount.Point, text)
	}
	return one(Pass, f.Mount.Point, text)
}

func sunrpc(f *exam) []answer {
	if !f.NFS() {
		return skip(notNFS)
	}
	var out []answer
	for name, least := range map[string]int64{"tcp_slot_table_entries": f.whole("sunrpc", "least"),
		"tcp_max_slot_table_entries": f.whole("sunrpc", "least_max")} {
		n, ok := f.Integer("/proc/sys/sunrpc/" + name)
		if !ok {
			continue
		}
		a := answer{level: Pass, subject: name, observed: fmt.Sprint(n)}.with("want", fmt.Sprint(least))
		if n < least {
			a.level = Warn
		}
		out = append(out, a)
	}
	if out == nil {
		return skip("the setting is not there")
	}
	slices.SortFunc(out, func(a, b answer) int { return strings.Compare(a.subject, b.subject) })
	return out
}

// lustre judges the file's stripes, the client's settings and the fill level of the targets, as far as the client
// shows them without extra tools.
func lustre(f *exam) []answer {
	if f.Mount == nil || f.Mount.FSType != "lustre" {
		return skip("not on Lustre")
	}
	out := append(f.lustreStripes(), f.lustreClient()...)
	if fill := f.lustreFill(); fill != nil {
		out = append(out, fill...)
	}
	return out
}

func (f *exam) lustreStripes() []answer {
	t := f.Target
	dir := quote(t.Path)
	if i := strings.LastIndexByte(t.Path, '/'); !t.Dir && i > 0 {
		dir = quote(t.Path[:i])
	}
	a := answer{subject: t.Path}.with("now",
		"# lfs setstripe -c -1 -S 16M "+dir+", then write the file anew: lfs migrate -c -1 -S 16M "+quote(t.Path))
	if t.Stripe == nil {
		u := unknown(t.Path, "the file system does not show its stripes", "lfs getstripe "+quote(t.Path))
		u.vars["who"] = "anyone"
		return []answer{u}
	}
	a.level, a.observed = Pass, fmt.Sprintf("%d stripes of %s", t.Stripe.Count, units.Bytes(t.Stripe.Size))
	if t.Size > f.whole("lustre", "big_file") && t.Stripe.Count == 1 {
		a.level, a.observed = Warn, fmt.Sprintf("%s on one OST, in stripes of %s", units.Bytes(t.Size),
			units.Bytes(t.Stripe.Size))
	}
	if t.Stripe.Size < f.whole("lustre", "stripe") {
		a.level = Warn
	}
	return []answer{a}
}

func (f *exam) lustreClient() []answer {
	var out []answer
	for name, least := range map[string]int64{"max_rpcs_in_flight": f.whole("lustre", "rpcs"),
		"max_pages_per_rpc": f.whole("lustre", "pages")} {
		all := f.LustreParams("osc", name)
		if len(all) == 0 {
			u := unknown("osc.*."+name, "the client does not show it here", "lctl get_param osc.*."+name)
			out = append(out, u)
			continue
		}
		lowest, at := int64(1<<62), ""
		for _, target := range slices.Sorted(maps.Keys(all)) {
			if n, err := strconv.ParseInt(all[target], 10, 64); err == nil && n < lowest {
				lowest, at = n, target
			}
		}
		a := answer{level: Pass, subject: "osc.*." + name, observed: fmt.Sprintf("%d or more on %d targets", lowest,
			len(all))}.
			with("now", fmt.Sprintf("lctl set_param osc.*.%s=%d", name, least))
		if lowest < least {
			a.level, a.observed = Warn, fmt.Sprintf("%d on %s", lowest, at)
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b answer) int { return strings.Compare(a.subject, b.subject) })
	return out
}

// lustreFill compares the fill levels of the targets. It returns nil if the client does not tell.
func (f *exam) lustreFill() []answer {
	total, free := f.LustreParams("osc", "kbytestotal"), f.LustreParams("osc", "kbytesavail")
	fullest, emptiest, at := -1., 101., ""
	for _, target := range slices.Sorted(maps.Keys(total)) {
		t, err1 := strconv.ParseFloat(total[target], 64)
		a, err2 := strconv.ParseFloat(free[target], 64)
		if err1 != nil || err2 != nil || t <= 0 {
			continue
		}
		used := 100 - 100*a/t
		if emptiest = min(emptiest, used); used > fullest {
			fullest, at = used, target
		}
	}
	if fullest < 0 {
		return nil
	}
	a := answer{level: Pass, subject: f.Mount.Point, observed: fmt.Sprintf("targets are %.0f to %.0f %% full", emptiest,
		fullest)}.
		with("now", "# free space, or spread files anew: lfs df "+quote(f.Mount.Point)+"; lfs migrate -c -1 FILE")
	if fullest > f.num("lustre", "ost_used_pct") || fullest-emptiest > f.num("lustre", "ost_spread_pp") {
		a.level, a.observed = Warn, a.observed+", the fullest is "+at
	}
	return []answer{a}
}
