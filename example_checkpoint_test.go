// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/nebulaio/nebulaio"
)

// Three checkpoints are saved, listed, verified and pruned. Each has one data file; a real one has a file of each rank.
func ExampleSystem_CommitCheckpoint() {
	root, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(root)
	ctx := context.Background()
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		log.Fatal(err)
	}
	defer sys.Close()

	for step := 100; step <= 300; step += 100 {
		dir, id := filepath.Join(root, fmt.Sprintf("step-%010d", step)), fmt.Sprintf("%016x", step) // a random id as a rule
		if err := os.Mkdir(dir, 0o755); err != nil {
			log.Fatal(err)
		}
		name := "__0_0_" + id + ".distcp"
		w, err := sys.WritePieces(ctx, filepath.Join(dir, name), []nebulaio.Piece{{Bytes: []byte("weights")}},
			nebulaio.WriteOptions{})
		if err != nil {
			log.Fatal(err)
		}
		manifest := fmt.Sprintf(`{"id":%q,"step":%d,"world":1,"files":[{"name":%q,"size":7,"crc64nvme":%q}],
			"items":[{"tensor":"w","file":0,"offset":0,"size":7,"dtype":"U8","shape":[7],"at":[0]}]}`, id, step, name, w.CRC64NVME)
		if _, err := sys.CommitCheckpoint(ctx, dir, nebulaio.CheckpointCommitOptions{Manifest: []byte(manifest),
			Metadata: []byte("PyTorch's metadata")}); err != nil {
			log.Fatal(err)
		}
	}

	pruned, err := sys.PruneCheckpoints(ctx, root, nebulaio.CheckpointPruneOptions{KeepLast: 2})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("removed:", pruned.Removed[0].Name)
	all, err := sys.ListCheckpoints(ctx, root, nebulaio.CheckpointListOptions{})
	if err != nil {
		log.Fatal(err)
	}
	latest := all[len(all)-1]
	v, err := sys.VerifyCheckpoint(ctx, latest.Path, nebulaio.CheckpointVerifyOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: step %d, %d bytes, %s\n", latest.Name, *latest.Step, latest.Bytes, v.Verdict)
	// Output:
	// removed: step-0000000100
	// step-0000000300: step 300, 7 bytes, good
}
