// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// sumsText returns the content of the object KEY.crc64nvme for an object with one block.
func sumsText(b string) string {
	s := checksum.Sums{Size: int64(len(b)), Block: checksum.DefaultBlock, Blocks: []uint64{checksum.Of([]byte(b))}}
	return string(s.Encode())
}

// putCheckpoint stores the data files of a checkpoint and commits it.
func putCheckpoint(t *testing.T, sys *nebulaio.System, access nebulaio.ClientOptions, prefix string, step int,
	sidecars bool) (nebulaio.CheckpointCommit, error) {
	t.Helper()
	id := fmt.Sprintf("%016x", step)
	var files, items []any
	for rank := range 2 {
		name, b := fmt.Sprintf("__%d_0_%s.distcp", rank, id), string(contentOf(step, rank))
		put(t, sys, access, map[string]string{prefix + "/" + name: b})
		if sidecars {
			put(t, sys, access, map[string]string{prefix + "/" + name + ".crc64nvme": sumsText(b)})
		}
		files = append(files, map[string]any{"name": name, "size": len(b),
			"crc64nvme": fmt.Sprintf("%016x", checksum.Of([]byte(b)))})
		items = append(items, map[string]any{"tensor": fmt.Sprintf("w%d", rank), "file": rank, "size": len(b), "dtype": "U8"})
	}
	m, err := json.Marshal(map[string]any{"id": id, "step": step, "world": 2, "files": files, "items": items})
	if err != nil {
		t.Fatal(err)
	}
	return sys.CommitCheckpoint(t.Context(), "s3://box/"+prefix, nebulaio.CheckpointCommitOptions{Manifest: m,
		Metadata: []byte("metadata of " + id), Client: access})
}

// TestCheckpointsInBuckets commits, lists, verifies and prunes checkpoints of a bucket, through the door and over HTTP.
func TestCheckpointsInBuckets(t *testing.T) {
	endpoint, _ := serve(t)
	sys := crashSystem(t)
	for _, door := range []string{"require", "off"} {
		t.Run("door "+door, func(t *testing.T) {
			access := nebulaio.ClientOptions{Endpoint: endpoint, AccessKey: doorUser, SecretKey: doorPassword, Door: door}
			root := "run-" + door
			at := func(step int) string { return fmt.Sprintf("%s/step-%010d", root, step) }
			for step := 1; step <= 4; step++ {
				c, err := putCheckpoint(t, sys, access, at(step), step, step%2 == 0)
				if err != nil || c.Bytes == 0 || len(c.Removed) != 0 {
					t.Fatalf("%+v, %v", c, err)
				}
			}
			put(t, sys, access, map[string]string{at(5) + "/__0_0_" + strings.Repeat("0", 16) + ".distcp": "running"})
			bucketListing(t, sys, access, "s3://box/"+root)
			bucketDamage(t, sys, access, at(3), at(4))
			p, err := sys.PruneCheckpoints(t.Context(), "s3://box/"+root, nebulaio.CheckpointPruneOptions{KeepLast: 1,
				KeepEvery: 2, Client: access})
			if err != nil || len(p.Removed) != 2 || p.Removed[0].Name != "step-0000000001" ||
				p.Removed[1].Name != "step-0000000003" {
				t.Fatalf("%+v, %v", p, err)
			}
			found, err := sys.ListCheckpoints(t.Context(), "s3://box/"+root+"/", nebulaio.CheckpointListOptions{All: true,
				Client: access})
			if err != nil || len(found) != 3 || found[0].Name != "step-0000000002" {
				t.Errorf("%+v, %v", found, err)
			}
			// A save to the same prefix replaces the objects of the older one.
			if c, err := putCheckpoint(t, sys, access, at(4), 40, true); err != nil || len(c.Removed) != 6 {
				t.Errorf("%+v, %v", c, err)
			}
			if _, err := sys.ListCheckpoints(t.Context(), "s3://box/none", nebulaio.CheckpointListOptions{
				Client: access}); !errs.Is(err, errs.NotFound) {
				t.Errorf("a missing prefix: %v", err)
			}
		})
	}
}

func bucketListing(t *testing.T, sys *nebulaio.System, access nebulaio.ClientOptions, root string) {
	t.Helper()
	found, err := sys.ListCheckpoints(t.Context(), root, nebulaio.CheckpointListOptions{Client: access})
	if err != nil || len(found) != 4 {
		t.Fatalf("%+v, %v", found, err)
	}
	for i, c := range found {
		if *c.Step != int64(i+1) || !c.Complete || c.Format != "nebulaio" || !c.Checksums || c.World != 2 || c.Files != 2 {
			t.Errorf("%+v", c)
		}
		v, err := sys.VerifyCheckpoint(t.Context(), c.Path, nebulaio.CheckpointVerifyOptions{Client: access})
		if err != nil || v.Verdict != "good" || v.Read != c.Bytes {
			t.Errorf("%+v, %v", v, err)
		}
	}
	all, err := sys.ListCheckpoints(t.Context(), root, nebulaio.CheckpointListOptions{All: true, Client: access})
	if err != nil || len(all) != 5 || all[4].Complete {
		t.Errorf("%+v, %v", all, err)
	}
}

// bucketDamage replaces a data object by one with a flipped bit, in a checkpoint without and in one with KEY.crc64nvme.
func bucketDamage(t *testing.T, sys *nebulaio.System, access nebulaio.ClientOptions, prefixes ...string) {
	t.Helper()
	for i, prefix := range prefixes {
		step := 3 + i
		key := fmt.Sprintf("%s/__1_0_%016x.distcp", prefix, step)
		b := contentOf(step, 1)
		b[500] ^= 1
		put(t, sys, access, map[string]string{key: string(b)})
		v, err := sys.VerifyCheckpoint(t.Context(), "s3://box/"+prefix, nebulaio.CheckpointVerifyOptions{Client: access})
		if err != nil || v.Verdict != "damaged" || len(v.Problems) != 1 ||
			!strings.HasSuffix("/"+key, "/"+v.Problems[0].File) ||
			!slices.Equal(v.Problems[0].Tensors, []string{"w1"}) {
			t.Errorf("%s: %+v, %v", prefix, v, err)
		}
		put(t, sys, access, map[string]string{key: string(contentOf(step, 1))})
	}
}
