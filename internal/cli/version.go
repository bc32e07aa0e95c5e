// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio"
)

// versionJSON describes the build of this program.
type versionJSON struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Revision string `json:"revision,omitempty"` // absent when built outside of version control
	Time     string `json:"revision_time,omitempty"`
	Modified bool   `json:"modified"` // the tree differed from the revision
}

func newVersion(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of nebulaio and details of its build",
		Args:  noArgs,
		RunE: a.run(func(context.Context, []string) error {
			v := readVersion(debug.ReadBuildInfo)
			return a.printResult(asJSON, v, v.print)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	return cmd
}

func readVersion(info func() (*debug.BuildInfo, bool)) versionJSON {
	v := versionJSON{Version: nebulaio.Version(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	b, ok := info()
	if !ok {
		return v
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v versionJSON) print(w io.Writer) {
	field(w, "version", "nebulaio %s", v.Version)
	field(w, "go", "%s %s/%s", v.Go, v.OS, v.Arch)
	switch {
	case v.Revision == "":
		field(w, "revision", "unknown: built outside of version control")
	case v.Modified:
		field(w, "revision", "%s of %s, modified", v.Revision, v.Time)
	default:
		field(w, "revision", "%s of %s", v.Revision, v.Time)
	}
}
