// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/cluster"
	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/node"
	"github.com/nebulaio/nebulaio/internal/units"
)

// clusterJSON is the result of cluster status.
type clusterJSON struct {
	Running bool   `json:"running"` // whether a server runs on the data directory
	Data    string `json:"data"`
	node.Cluster
}

// clusterKeyJSON is the result of cluster key.
type clusterKeyJSON struct {
	Key  string `json:"key,omitempty"`  // the key, if it was not written to a file
	File string `json:"file,omitempty"` // the file that has the key
}

func newCluster(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Inspect the cluster of a server, and make the key of a new cluster",
		Args:  noArgs,
		RunE:  a.needsCommand,
	}
	cmd.AddCommand(newClusterStatus(a), newClusterKey(a))
	return cmd
}

func newClusterStatus(a *app) *cobra.Command {
	var s settings
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the nodes of the cluster, and the bytes that they gave each other",
		Long: `Show the nodes of the cluster as the server on the data directory sees them, and
the bytes that they gave each other.

A node in state alive is asked for the blocks that it owns. A node in state
failing is not asked for a while after failures, and a node in state distrusted
has sent wrong bytes. A node in state lost does not answer, and is contacted again
and again for a day.`,
		Args: noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			c, err := s.load(a)
			if err != nil {
				return err
			}
			st := &clusterJSON{Data: c.Data}
			if st.Cluster, st.Running, err = node.LookAtCluster(ctx, c); err != nil {
				return interrupted(ctx, err)
			}
			return a.printResult(asJSON, st, func(w io.Writer) { printCluster(w, st) })
		}),
	}
	s.add(cmd.Flags(), func(k config.Key) bool { return k.Name == "data" })
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	return cmd
}

func newClusterKey(a *app) *cobra.Command {
	var out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Make the secret key of a new cluster",
		Long: `Make the secret key of a new cluster: 32 random bytes in base64.

All nodes of a cluster have the same key, in the file that the setting
cluster.key_file names. Everybody who has the key can read all cached objects of
the cluster. With --out, the key is written to a new file with mode 0600, and is
not printed.`,
		Args: noArgs,
		RunE: a.run(func(context.Context, []string) error {
			v := clusterKeyJSON{File: out}
			if out == "" {
				v.Key = cluster.NewKey()
			} else if err := cluster.WriteKey(out); err != nil {
				return err
			}
			return a.printResult(asJSON, v, func(w io.Writer) {
				if out == "" {
					fmt.Fprintln(w, v.Key)
					return
				}
				field(w, "key", "%s", printable(out))
			})
		}),
	}
	cmd.Flags().StringVar(&out, "out", "", "new `file` for the key; without --out, the key is printed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	return cmd
}

func printCluster(w io.Writer, st *clusterJSON) {
	if !st.Enabled {
		field(w, "cluster", "none: %s", printable(st.Reason))
		if st.Fix != "" {
			fmt.Fprintf(w, "  fix: %s\n", printable(st.Fix))
		}
		return
	}
	s := st.Status
	field(w, "node", "%s", printable(s.Name))
	if s.Zone != "" {
		field(w, "zone", "%s", printable(s.Zone))
	}
	field(w, "served", "%s, %s, %s, %d refused", plural(int(s.Served.Requests), "request"), units.Bytes(s.Served.Bytes),
		plural(int(s.Served.Errors), "error"), s.Served.Busy)
	field(w, "fetched", "%s, %s, %s, %d refused, %d with wrong bytes", plural(int(s.Fetched.Requests), "request"),
		units.Bytes(s.Fetched.Bytes), plural(int(s.Fetched.Errors), "error"), s.Fetched.Refused, s.Fetched.Wrong)
	field(w, "strangers", "%s without the cluster key", plural(int(s.Strangers), "connection"))
	fmt.Fprintln(w)
	t := newTable("node", "address", "zone", ">weight", "state", ">requests", ">fetched", ">errors")
	for i := range s.Members {
		m := &s.Members[i]
		t.add(printable(m.Name), printable(m.Address), printable(m.Zone), strconv.Itoa(m.Weight), m.State,
			strconv.FormatInt(m.Fetched.Requests, 10), units.Bytes(m.Fetched.Bytes), strconv.FormatInt(m.Fetched.Errors, 10))
	}
	t.print(w)
	for i := range s.Members {
		if m := &s.Members[i]; m.Why != "" {
			field(w, m.State, "%s: %s", printable(m.Name), printable(m.Why))
		}
	}
}
