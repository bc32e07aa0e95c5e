// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/doctor"
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/node"
	"github.com/nebulaio/nebulaio/internal/units"
)

// gpudirectJSON describes the GPUDirect door and the routes behind it.
type gpudirectJSON struct {
	// Running reports whether a server runs on the data directory. If not, the door is described from the configuration.
	Running bool      `json:"running"`
	Data    string    `json:"data"`
	Door    node.Door `json:"door"`
	// Devices are the GPUs that this command sees, in the order of nvidia-smi.
	Devices []gpudirectDevice `json:"devices"`
	// Verdict is the verdict of doctor for the data directory and the first GPU.
	Verdict doctor.Verdict `json:"verdict"`
	// Refusals lists what is not used (the door, its writes, a GPU or cuFile), each with the reason and a fix.
	Refusals []gpudirectRefusal `json:"refusals"`
}

type gpudirectDevice struct {
	Index   int    `json:"index"`
	ID      string `json:"id"` // as the driver of this machine numbers it
	Name    string `json:"name"`
	UUID    string `json:"uuid"`
	NUMA    int    `json:"numa_node"` // -1 if unknown
	Allowed bool   `json:"allowed"`   // by gpudirect.device_ids
}

type gpudirectRefusal struct {
	What   string `json:"what"`
	On     string `json:"on,omitempty"`
	Reason string `json:"reason"`
	Fix    string `json:"fix,omitempty"`
}

func newGPUDirect(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gpudirect",
		Short: "Inspect the door, the local socket for GPUDirect clients of the server",
		Args:  noArgs,
		RunE:  a.needsCommand,
	}
	cmd.AddCommand(newGPUDirectStatus(a))
	return cmd
}

func newGPUDirectStatus(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the GPUs, routes and counters of the GPUDirect door, and a fix for each feature not in use",
		Long: `Show the GPUs, routes and counters of the GPUDirect door, and a fix for each
feature not in use.

The door is the local socket of GPUDirect clients. If a server runs on the data
directory, the command shows the server's description of its door. If no server
runs on the data directory, the command describes the door from the configuration.
The routes and times of transfers are reported by the clients that made them. The
command also checks the GPUs of this machine, and whether data can go directly
from the data directory to a GPU, as nebulaio doctor does. The command changes
nothing and reads no object.`,
		Args: noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			c, err := s.load(a)
			if err != nil {
				return err
			}
			p := a.startWork("asking the server and looking for GPUs", asJSON)
			st, err := a.gpudirectStatus(ctx, c)
			p.clear()
			if err != nil {
				return interrupted(ctx, err)
			}
			return a.printResult(asJSON, st, func(w io.Writer) { printGPUDirect(w, st) })
		}),
	}
	s.add(cmd.Flags(), func(k config.Key) bool {
		return k.Name == "data" || k.Name == "rdma.enabled" || strings.HasPrefix(k.Name, "gpudirect.")
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	return cmd
}

func (a *app) gpudirectStatus(ctx context.Context, c *config.Config) (*gpudirectJSON, error) {
	st := &gpudirectJSON{Data: c.Data, Devices: []gpudirectDevice{}, Refusals: []gpudirectRefusal{}}
	var err error
	if st.Door, st.Running, err = node.LookAtDoor(ctx, c); err != nil {
		return nil, err
	}
	path := c.Data
	if _, err := os.Stat(path); err != nil {
		path = "" // the store does not exist yet
	}
	m, err := a.look(ctx, path, -1, true)
	if err != nil {
		return nil, err
	}
	res, err := doctor.Diagnose(facts.Live(), m, doctor.Options{GPU: -1})
	if err != nil {
		return nil, err
	}
	st.Verdict = res.Verdict
	st.devices(m.Survey)
	st.refusals(m.Survey, path)
	return st, nil
}

// devices lists the GPUs of a survey and whether the settings allow each.
func (st *gpudirectJSON) devices(s *device.Survey) {
	allowed := st.Door.Settings.DeviceIDs
	for i, d := range node.GPUs(s.Devices) {
		st.Devices = append(
			st.Devices,
			gpudirectDevice{
				Index:   i,
				ID:      d.ID,
				Name:    d.Model,
				UUID:    d.UUID,
				NUMA:    d.NUMANode,
				Allowed: len(allowed) == 0 || slices.Contains(allowed, i),
			},
		)
	}
}

// refusals collects what is not used (the door, its writes, a GPU or cuFile), and the reasons.
func (st *gpudirectJSON) refusals(s *device.Survey, path string) {
	add := func(what, on, reason, fix string) {
		st.Refusals = append(st.Refusals, gpudirectRefusal{what, on, reason, fix})
	}
	d := &st.Door
	if !d.Served {
		add("door", d.Socket, d.Reason, d.Fix)
	} else if !d.Writes {
		add("writes through the door", st.Data, d.WritesReason, d.WritesFix)
	}
	if d.Served && d.Reopenable != "" {
		add("read-only files", st.Data, d.Reopenable, "run clients as a different user than the server")
	}
	if s.NoGPU != "" {
		add("gpu", "", s.NoGPU, s.Fix)
	}
	for _, i := range d.Settings.DeviceIDs {
		if s.NoGPU == "" && i >= len(st.Devices) {
			add("gpu", fmt.Sprintf("device_ids %d", i), fmt.Sprintf("there is no such GPU, %s found",
				plural(len(st.Devices), "GPU")), "correct gpudirect.device_ids")
		}
	}
	if v := &st.Verdict; path != "" && s.NoGPU == "" && v.Direct != "yes" {
		reason, fix := v.Summary, "see: nebulaio doctor "+path
		if v.Cause != nil {
			reason += ": " + strings.TrimSpace(v.Cause.ID+" "+v.Cause.Observed)
			if v.Cause.FixNow != "" {
				fix = strings.TrimPrefix(v.Cause.FixNow, "# ")
			}
		}
		add("cufile", path, reason, fix)
	}
	for _, note := range d.Notes {
		key, _, _ := strings.Cut(note, " ") // a note begins with its key
		if key == "rdma.enabled" {
			add("rdma", "", note, "set rdma.enabled to false")
		} else {
			add("setting", "", note, "lower "+key+", or let clients choose a larger value themselves")
		}
	}
}

func printGPUDirect(w io.Writer, st *gpudirectJSON) {
	d := &st.Door
	switch {
	case d.Served:
		field(w, "door", "open at %s", printable(d.Socket))
		field(w, "store", "%s", printable(d.Store))
	case st.Running:
		field(w, "door", "not served by the server that runs on %s", printable(st.Data))
	default:
		field(w, "door", "no server runs on %s; it would be at %s", printable(st.Data), printable(d.Socket))
	}
	g := &d.Settings
	field(w, "settings", "enabled %v, buffer_pool_size %s, max_transfer_size %s, queue_depth %d, "+
		"enable_async %v, enable_p2p %v, device_ids %s",
		g.Enabled, units.Bytes(g.BufferPoolSize), units.Bytes(g.MaxTransferSize), g.QueueDepth, g.EnableAsync, g.EnableP2P,
		indices(g.DeviceIDs))
	field(w, "bounds", "%s, %s and %s of drafts for each access key; a connection closes after %s of silence",
		plural(g.MaxConnections, "connection"), plural(g.MaxHandles, "handle"), units.Bytes(g.MaxDraftBytes), g.IdleTimeout)
	if n := d.Stats; n != nil {
		field(w, "clients", "%d connected, %s, %d refused", n.Connections, plural(int(n.Logins), "login"), n.LoginsRefused)
		field(w, "held", "%s of %s, %s of %s", plural(int(n.Handles), "object"), units.Bytes(n.HeldBytes),
			plural(int(n.Drafts), "draft"), units.Bytes(n.DraftBytes))
		field(w, "handed out", " %s as files, %s of %s inside replies", plural(int(n.Opened), "object"),
			plural(int(n.Inline), "object"), units.Bytes(n.InlineBytes))
		field(w, "written", "%s committed, %d aborted", plural(int(n.Committed), "object"), n.Aborted)
		printMoved(w, st)
	}
	if len(st.Devices) > 0 {
		fmt.Fprintln(w)
		t := newTable(">gpu", "device", "name", "uuid", ">numa", "allowed")
		for _, x := range st.Devices {
			numa, allowed := strconv.Itoa(x.NUMA), "yes"
			if x.NUMA < 0 {
				numa = "?"
			}
			if !x.Allowed {
				allowed = "no"
			}
			t.add(strconv.Itoa(x.Index), x.ID, printable(x.Name), printable(x.UUID), numa, allowed)
		}
		t.print(w)
	}
	fmt.Fprintln(w)
	field(w, "direct", "%s: %s", st.Verdict.Direct, printable(st.Verdict.Summary))
	for _, r := range st.Verdict.Routes {
		field(w, "", "%s: %s", r.Name, r.State)
	}
	for _, r := range st.Refusals {
		on := ""
		if r.On != "" {
			on = " (" + printable(r.On) + ")"
		}
		field(w, "not used", "%s%s: %s", r.What, on, printable(r.Reason))
		if r.Fix != "" {
			fmt.Fprintf(w, "  fix: %s\n", printable(r.Fix))
		}
	}
}

// printMoved shows the bytes that clients report, and the refusals they got.
func printMoved(w io.Writer, st *gpudirectJSON) {
	n := st.Door.Stats
	if len(n.Moved) > 0 {
		fmt.Fprintln(w, "\nas clients report:")
		t := newTable("direction", "device", "route", "stage", ">bytes", ">time")
		for _, m := range n.Moved {
			t.add(m.Direction, m.Device, m.Route, m.Stage, units.Bytes(m.Bytes), seconds(m.Seconds))
		}
		t.print(w)
	}
	for _, code := range slices.Sorted(maps.Keys(n.Refused)) {
		if k := n.Refused[code]; k > 0 {
			field(w, "refused", "%s: %d", code, k)
		}
	}
}

// indices formats a list of GPU indexes.
func indices(all []int) string {
	if len(all) == 0 {
		return "all"
	}
	var text []string
	for _, i := range all {
		text = append(text, strconv.Itoa(i))
	}
	return strings.Join(text, ",")
}
