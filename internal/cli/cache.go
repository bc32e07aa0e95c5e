// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/node"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
	"github.com/nebulaio/nebulaio/internal/units"
)

// cacheListJSON is the result of cache ls.
type cacheListJSON struct {
	Entries []node.Cached `json:"entries"`
}

// cacheVerifyJSON is the result of cache verify.
type cacheVerifyJSON struct {
	Clean   bool  `json:"clean"`
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
	Dropped int64 `json:"dropped"` // damaged blocks that were dropped
	Lost    int64 `json:"lost"`    // entries that were dropped because their file was missing or too short
	// Damaged lists the dropped blocks; only the first ones if there are very many.
	Damaged []cachefile.Damage `json:"damaged"`
}

// cachePinJSON is the result of cache pin and cache unpin.
type cachePinJSON struct {
	Pinned bool `json:"pinned"`
	node.CachePin
}

func newCache(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "List, verify, pin and evict cached objects of upstream buckets",
		Long: `List, verify, pin and evict cached objects of upstream buckets.

If a server runs on the data directory, the commands ask the server. If no server
runs, the commands open the cache themselves and need --config FILE with the
settings of the server. BUCKET is the name of an upstream bucket at this server. A
* at the end of KEY stands for all keys that begin with KEY.`,
		Args: noArgs,
		RunE: a.needsCommand,
	}
	cmd.AddCommand(newCacheList(a), newCacheStat(a), newCacheVerify(a), newCachePin(a), newCacheUnpin(a), newCacheEvict(a))
	return cmd
}

// cacheFlags are the flags of every command on the cache.
type cacheFlags struct {
	settings
	asJSON bool
}

func (f *cacheFlags) add(cmd *cobra.Command) {
	f.settings.add(cmd.Flags(), func(k config.Key) bool { return k.Name == "data" || k.Name == "cache.directory" })
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print the result as one JSON object")
}

// askCache calls do with the cache of the configuration.
func askCache[T any](ctx context.Context, a *app, f *cacheFlags, do func(*node.CacheAdmin) (T, error)) (T, error) {
	var none T
	c, err := f.load(a)
	if err != nil {
		return none, err
	}
	k, err := node.AdministerCache(ctx, c)
	if err != nil {
		return none, err
	}
	out, err := do(k)
	if closed := k.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return none, interrupted(ctx, err)
	}
	return out, nil
}

// cacheArg returns the entries that the only argument names; without an argument, all entries.
func cacheArg(args []string) node.CacheMatch {
	if len(args) == 0 {
		return node.CacheMatch{}
	}
	return node.ParseCacheName(args[0])
}

func newCacheList(a *app) *cobra.Command {
	var f cacheFlags
	cmd := &cobra.Command{
		Use:   "ls [BUCKET[/KEY]]",
		Short: "List cached objects, how much of each is on the disk, and how it was verified",
		Args:  cobra.MaximumNArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			all, err := askCache(ctx, a, &f, func(k *node.CacheAdmin) ([]node.Cached, error) {
				return k.List(ctx, cacheArg(args))
			})
			if err != nil {
				return err
			}
			return a.printResult(f.asJSON, cacheListJSON{all}, func(w io.Writer) { printCached(w, all) })
		}),
	}
	f.add(cmd)
	return cmd
}

func printCached(w io.Writer, all []node.Cached) {
	if len(all) == 0 {
		fmt.Fprintln(w, "nothing is cached")
	}
	for _, e := range all {
		name := e.Bucket
		if name == "" {
			name = "(" + e.Origin + ")"
		}
		state := e.Verified
		if !e.Whole {
			state = units.Bytes(e.Bytes) + " of it cached"
		}
		for _, mark := range []struct {
			on   bool
			text string
		}{{e.Pinned, "pinned"}, {!e.Current, "superseded"}} {
			if mark.on {
				state += ", " + mark.text
			}
		}
		fmt.Fprintf(w, "%10s  %s/%s  %s\n", units.Bytes(e.Size), printable(name), printable(e.Key), printable(state))
	}
}

func newCacheStat(a *app) *cobra.Command {
	var f cacheFlags
	cmd := &cobra.Command{
		Use:   "stat",
		Short: "Show the size of the cache, and the hits and misses of each upstream bucket",
		Args:  noArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			s, err := askCache(ctx, a, &f, func(k *node.CacheAdmin) (node.CacheStats, error) { return k.Stats(ctx) })
			if err != nil {
				return err
			}
			return a.printResult(f.asJSON, s, func(w io.Writer) { printCacheStats(w, s) })
		}),
	}
	f.add(cmd)
	return cmd
}

func printCacheStats(w io.Writer, s node.CacheStats) {
	field(w, "cached", "%s of %s, %s, %d whole", units.Bytes(s.Files.Bytes), units.Bytes(s.Files.Capacity),
		plural(int(s.Files.Entries), "object"), s.Files.Whole)
	field(w, "evicted", "%s, %s", plural(int(s.Files.Evicted), "object"), units.Bytes(s.Files.Freed))
	field(w, "damaged", "%s", plural(int(s.Files.Damaged), "block"))
	for _, b := range s.Buckets {
		field(w, b.Name, "%d hits, %d misses, %d from neighbours, %d stale; %s from %s, which is %s", b.Hits, b.Misses,
			b.Peers, b.Stale, units.Bytes(b.UpstreamBytes), printable(b.Origin), breakerText(b.State))
	}
}

// breakerText describes the state of an upstream.
func breakerText(s upstream.State) string {
	text := "reachable"
	if s.Phase != upstream.Closed {
		text = "not reachable"
	}
	if s.Failures > 0 {
		text += fmt.Sprintf(": %d failures in a row since %s, the last one: %s", s.Failures,
			s.Since.UTC().Format(time.RFC3339), printable(s.Last))
	}
	return text
}

func newCacheVerify(a *app) *cobra.Command {
	var f cacheFlags
	cmd := &cobra.Command{
		Use:   "verify [BUCKET[/KEY]]",
		Short: "Compare cached objects with their checksums, and drop damaged blocks",
		Long: `Compare cached objects with their checksums, and drop damaged blocks.

The next read of a dropped block fetches the block from the upstream again. The
exit code is 5 if a block was damaged.`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			p := a.startProgress(0, f.asJSON)
			r, err := askCache(ctx, a, &f, func(k *node.CacheAdmin) (cachefile.Report, error) {
				return k.Verify(ctx, cacheArg(args), func(now cachefile.Progress) { p.update(now.Bytes, now.AllBytes) })
			})
			p.clear()
			if err != nil {
				return err
			}
			out := cacheVerifyJSON{Clean: r.Dropped == 0 && r.Lost == 0, Entries: r.Entries, Bytes: r.Bytes, Dropped: r.Dropped,
				Lost: r.Lost, Damaged: append([]cachefile.Damage{}, r.Damaged...)}
			if !out.Clean {
				a.exit = errs.Corrupt.ExitCode()
			}
			return a.printResult(f.asJSON, out, func(w io.Writer) { printCacheVerify(w, out) })
		}),
	}
	f.add(cmd)
	return cmd
}

func printCacheVerify(w io.Writer, r cacheVerifyJSON) {
	field(w, "compared", "%s, %s", plural(int(r.Entries), "object"), units.Bytes(r.Bytes))
	field(w, "dropped", "%s, %s", plural(int(r.Dropped), "block"), plural(int(r.Lost), "object"))
	for _, d := range r.Damaged {
		fmt.Fprintf(w, "  %s: block %d (%s)\n", printable(d.Key), d.Block, d.What)
	}
}

func newCachePin(a *app) *cobra.Command {
	var f cacheFlags
	var during time.Duration
	cmd := &cobra.Command{
		Use:   "pin BUCKET/KEY",
		Short: "Keep cached objects from being evicted",
		Args:  cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			p, err := cachePin(args[0])
			if err != nil {
				return err
			}
			if during > 0 {
				end := time.Now().Add(during)
				p.Expires = &end
			}
			return f.change(ctx, a, true, p, func(k *node.CacheAdmin) error { return k.Pin(ctx, p) })
		}),
	}
	f.add(cmd)
	cmd.Flags().DurationVar(&during, "for", 0, "`TIME` after which the pin ends, such as 24h; 0 means never")
	return cmd
}

func newCacheUnpin(a *app) *cobra.Command {
	var f cacheFlags
	cmd := &cobra.Command{
		Use:   "unpin BUCKET/KEY",
		Short: "Remove a pin, so that the objects may be evicted",
		Args:  cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			p, err := cachePin(args[0])
			if err != nil {
				return err
			}
			return f.change(ctx, a, false, p, func(k *node.CacheAdmin) error { return k.Unpin(ctx, p) })
		}),
	}
	f.add(cmd)
	return cmd
}

// cachePin returns the pin that an argument names.
func cachePin(arg string) (node.CachePin, error) {
	m := node.ParseCacheName(arg)
	if m.Bucket == "" || m.Key == "" && m.Exact {
		return node.CachePin{}, errs.New(errs.Invalid, "pin", fmt.Sprintf("%q", arg),
			"names no object; expected BUCKET/KEY or "+"BUCKET/PREFIX*")
	}
	return node.CachePin{Bucket: m.Bucket, Key: m.Key, Prefix: !m.Exact}, nil
}

// change changes a pin and prints it.
func (f *cacheFlags) change(ctx context.Context, a *app, pinned bool, p node.CachePin,
	do func(*node.CacheAdmin) error) error {
	if _, err := askCache(ctx, a, f, func(k *node.CacheAdmin) (struct{}, error) { return struct{}{}, do(k) }); err != nil {
		return err
	}
	return a.printResult(f.asJSON, cachePinJSON{pinned, p}, func(w io.Writer) {
		star := map[bool]string{true: "*"}[p.Prefix]
		fmt.Fprintf(w, "%s %s/%s%s\n", map[bool]string{true: "pinned", false: "unpinned"}[pinned], printable(p.Bucket),
			printable(p.Key), star)
	})
}

func newCacheEvict(a *app) *cobra.Command {
	var f cacheFlags
	var all bool
	cmd := &cobra.Command{
		Use:   "evict [BUCKET[/KEY]]",
		Short: "Remove cached objects from the disk, except pinned ones",
		Long: `Remove cached objects from the disk, except pinned ones.

The objects stay on their upstream. Without BUCKET, the command needs --all.`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if len(args) == 0 && !all {
				return errs.New(errs.Invalid, "evict", "", "no bucket is named").WithFix("name BUCKET or BUCKET/KEY, or give --all")
			}
			e, err := askCache(ctx, a, &f, func(k *node.CacheAdmin) (cachefile.Evicted, error) {
				return k.Evict(ctx, cacheArg(args))
			})
			if err != nil {
				return err
			}
			return a.printResult(f.asJSON, e, func(w io.Writer) {
				field(w, "evicted", "%s, %s", plural(int(e.Entries), "object"), units.Bytes(e.Bytes))
				field(w, "pinned", "%s stayed", plural(int(e.Pinned), "object"))
			})
		}),
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "evict all objects of all upstream buckets")
	return cmd
}
