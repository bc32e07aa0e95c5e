// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/node"
)

// eventsJSON is the result of events status.
type eventsJSON struct {
	Running bool               `json:"running"` // whether a server runs on the data directory
	Targets []node.EventTarget `json:"targets"`
}

// replicationJSON is the result of replication status.
type replicationJSON struct {
	Running bool                   `json:"running"` // whether a server runs on the data directory
	Links   []node.ReplicationLink `json:"links"`
}

// offline explains what a status shows if no server runs.
const offline = `If a server runs on the data directory, the command asks the server. If no server
runs, the command shows the queues on the disk. Then --config FILE tells the command
which targets the server has.`

func newEvents(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show the targets of event notifications and their queues",
		Long: `Show the targets of event notifications and their queues.

Targets are settings of the server (event_target). Buckets choose their events over S3
(PutBucketNotificationConfiguration).`,
		Args: noArgs,
		RunE: a.needsCommand,
	}
	cmd.AddCommand(newEventsStatus(a))
	return cmd
}

func newEventsStatus(a *app) *cobra.Command {
	var f manageFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how many events wait for each target, and the last error of each target",
		Long: `Show how many events wait for each target, how old the oldest one is, what the
target has confirmed since the server started, and the last error of the target.

A full queue drops its oldest event for each new one. The addresses of targets are
shown without their paths and queries, which can be secrets.

` + offline,
		Args: noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			out, err := askData(ctx, a, &f, func(d *node.DataAdmin) (v eventsJSON, err error) {
				v.Running = d.Running()
				v.Targets, err = d.EventTargets(ctx)
				return v, err
			})
			if err != nil {
				return err
			}
			return a.printResult(f.asJSON, out, func(w io.Writer) { printEvents(w, out) })
		}),
	}
	f.add(cmd)
	return cmd
}

func newReplication(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replication",
		Short: "Show the replication of buckets to other S3 servers",
		Long: `Show the replication of buckets to other S3 servers.

Targets are settings of the server (replication). The rules of a bucket are set over S3
(PutBucketReplication).`,
		Args: noArgs,
		RunE: a.needsCommand,
	}
	cmd.AddCommand(newReplicationStatus(a))
	return cmd
}

func newReplicationStatus(a *app) *cobra.Command {
	var f manageFlags
	cmd := &cobra.Command{
		Use:   "status [BUCKET]",
		Short: "Show how many versions of each bucket wait for their copies, and the last error",
		Long: `Show how many versions of BUCKET, or of each replicated bucket, wait for their copies.
The command also shows how old the oldest waiting version is, what was copied since the
server started, and the last error of the target.

` + offline,
		Args: cobra.MaximumNArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			bucket := ""
			if len(args) > 0 {
				bucket = node.ParseCacheName(args[0]).Bucket
			}
			out, err := askData(ctx, a, &f, func(d *node.DataAdmin) (v replicationJSON, err error) {
				v.Running = d.Running()
				v.Links, err = d.Replication(ctx, bucket)
				return v, err
			})
			if err != nil {
				return err
			}
			return a.printResult(f.asJSON, out, func(w io.Writer) { printReplication(w, out) })
		}),
	}
	f.add(cmd)
	return cmd
}

func printEvents(w io.Writer, v eventsJSON) {
	printServer(w, v.Running)
	if len(v.Targets) == 0 {
		fmt.Fprintln(w, "there are no targets of event notifications")
		return
	}
	t := newTable("target", "type", "address", ">waiting", ">oldest", ">dropped", ">delivered", ">failures", "state")
	for i := range v.Targets {
		e := &v.Targets[i]
		kind, address, delivered, failures, state := "unknown", "unknown", "unknown", "unknown", "not sent to"
		if e.Type != "" {
			kind, address = e.Type, strings.Join(e.Address, ",")
		}
		if c := e.SinceStart; c != nil {
			delivered, failures, state = decimal(c.Delivered), decimal(c.Failures), stateOf(c.LastProblem)
		}
		t.add(printable(e.Target), kind, printable(address), decimal(e.Waiting), age(e.Queue), decimal(e.Lost), delivered,
			failures, state)
	}
	t.print(w)
	for i := range v.Targets {
		e := &v.Targets[i]
		printFull(w, e.Target, e.Queue)
		if e.Type == "" {
			field(w, "unknown", "%s: the configuration has no such target", printable(e.Target))
			fmt.Fprintf(w, "  fix: add event_target.%s to the configuration\n", printable(e.Target))
		}
		if e.SinceStart != nil {
			printProblem(w, e.Target, e.SinceStart.LastProblem)
		}
	}
}

func printReplication(w io.Writer, v replicationJSON) {
	printServer(w, v.Running)
	if len(v.Links) == 0 {
		fmt.Fprintln(w, "no bucket is replicated")
		return
	}
	t := newTable("bucket", "target", "endpoint", ">waiting", ">oldest", ">dropped", ">replicated", ">refused", "state")
	for i := range v.Links {
		l := &v.Links[i]
		endpoint, replicated, refused, state := "unknown", "unknown", "unknown", "not replicated"
		if l.Endpoint != "" {
			endpoint = l.Endpoint
		}
		if c := l.SinceStart; c != nil {
			replicated, refused, state = decimal(c.Replicated), decimal(c.Failed), stateOf(c.LastProblem)
		}
		t.add(printable(l.Bucket), printable(l.Target+"/"+l.To), printable(endpoint), decimal(l.Waiting), age(l.Queue),
			decimal(l.Lost), replicated, refused, state)
	}
	t.print(w)
	for i := range v.Links {
		l := &v.Links[i]
		name := l.Bucket + " to " + l.Target + "/" + l.To
		printFull(w, name, l.Queue)
		if l.SinceStart != nil {
			printProblem(w, name, l.SinceStart.LastProblem)
		}
	}
}

// printServer says that the counts of a server are missing, if no server runs.
func printServer(w io.Writer, running bool) {
	if !running {
		field(w, "server", "not running: the queues on the disk are shown")
	}
}

// printFull says that a queue is full, and what to do.
func printFull(w io.Writer, name string, q node.Queue) {
	if q.Full {
		field(w, "full", "%s: %s of at most %d wait, and each new one drops the oldest one", printable(name),
			plural(int(q.Waiting), "change"), q.Limit)
		fmt.Fprintln(w, "  fix: mend the target, or raise events.queue_limit")
	}
}

// printProblem prints the last error of a target with its time.
func printProblem(w io.Writer, name string, p node.LastProblem) {
	if p.LastError != "" {
		field(w, "error", "%s at %s: %s", printable(name), p.LastErrorAt.UTC().Format(time.RFC3339), printable(p.LastError))
	}
}

// stateOf describes whether the last try of a target succeeded.
func stateOf(p node.LastProblem) string {
	if p.Healthy {
		return "working"
	}
	return "failing"
}

// age returns the age of the oldest change in a queue.
func age(q node.Queue) string {
	if q.Oldest.IsZero() {
		return "none"
	}
	return seconds(q.OldestAge)
}
