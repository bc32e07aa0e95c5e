// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"testing"

	"github.com/nebulaio/nebulaio/test/effort"
	"github.com/nebulaio/nebulaio/test/house"
)

// floors gives each package of the product its floor. An import goes down, never up, never sideways.
var floors = map[string]int{
	"cmd/nebulaio": 11, "internal/cli": 10,
	"capi": 9, "internal/abi": 8,
	"":                 7, // the library
	"internal/bench":   8,
	"internal/copying": 6, "internal/copying/journal": 4, "internal/copying/versions": 5, "internal/migrate": 6,
	"internal/migrate/minioiam": 3, "internal/replication": 6, "internal/replication/rules": 4,
	"internal/process": 8, "internal/process/image": 3, "internal/process/criu": 3, "internal/process/target": 3,
	"internal/data/loader": 6, "internal/data/open": 5, "internal/checkpoint": 6, "internal/checkpoint/pickle": 2,
	"internal/boot": 6, "internal/model": 6, "internal/gather": 6, "internal/doctor": 6, "internal/tuning": 6,
	"internal/bench/dataset": 6,
	"internal/bench/train":   7,
	"internal/transfer":      5, "internal/device/open": 5, "internal/synth": 5, "internal/doctor/facts": 5,
	"internal/transfer/plan": 4, "internal/transfer/staging": 4, "internal/transfer/tally": 4,
	"internal/transfer/verify": 4, "internal/transfer/exchange": 4,
	"internal/device/host": 4, "internal/device/cuda": 4, "internal/device/nvml": 4, "internal/device/cufile": 4,
	"internal/format/safetensors": 4, "internal/bench/report": 4,
	"internal/audit": 2, "internal/accesslog": 2, "internal/notify": 4,
	"internal/lifecycle": 4, "internal/inventory": 4, "internal/iam": 4, "internal/iam/document": 3,
	"internal/store/datafile": 4, "internal/s3api": 6, "internal/node": 9,
	"internal/store/codec": 2, "internal/store/sendfile": 1, "internal/store/lend": 2, "internal/store/record": 4,
	"internal/store/layout": 4, "internal/store/metafile": 4,
	"internal/store/filecopy": 5, "internal/store/metadb": 5, "internal/store/witness": 5,
	"internal/store/fence": 6, "internal/store/metascan": 6, "internal/store/quarantine": 6,
	"internal/store/backup": 7, "internal/store/check": 7, "internal/store/cachefile": 7, "internal/store/disk": 8,
	"internal/store/salvage": 8,
	"internal/oidc":          2, "internal/s3api/sts": 1,
	"internal/s3api/policy": 5, "internal/s3api/express": 5, "internal/s3api/conn": 1, "internal/s3api/ktls": 2,
	"internal/s3api/xmldoc": 1,
	"internal/s3api/acl":    1,
	"report":                3, // public: what a transfer reports
	"internal/object":       3, "internal/config": 3, "internal/gpudirect/wire": 3,
	"internal/cluster": 4,
	"internal/seal":    3, "internal/keyring": 4, "internal/store/sealed": 5,
	"internal/store/upstream": 5, "internal/store/cache": 8,
	"internal/store/s3": 4, "internal/gpudirect/channel": 4, "internal/gpudirect/client": 6,
	"internal/place": 5, "internal/warm": 6,
	"internal/gpudirect/server": 6,
	"internal/data/chunk":       3, "internal/data/mds": 4, "internal/data/litdata": 4,
	"internal/data/sample": 2, "internal/data/wds": 3,
	"internal/data/tfrecord": 3, "internal/data/megatron": 4, "internal/data/npy": 4, "internal/data/order": 3,
	"internal/data/dataset": 3, "internal/data/pack": 5, "internal/data/tokens": 4,
	"internal/data/tokens/charset": 2, "internal/data/tokens/pattern": 3,
	"internal/device": 3, "internal/format": 3, "internal/bench/record": 3, "internal/meters": 4,
	"internal/units": 2, "internal/dl": 2, "internal/hostmem": 2, "internal/vfs": 2, "internal/uring": 2,
	"internal/plain": 2, "internal/nearest": 2, "internal/nvtx": 3, "internal/checksum": 2,
	"internal/top":      9,
	"internal/diagnose": 5, "internal/bottleneck": 3, "internal/blocklatency": 3, "internal/device/dcgm": 4,
	"internal/console": 8, "internal/console/machine": 7, "internal/console/inside": 5, "internal/console/session": 5,
	"internal/console/preview": 5, "internal/console/transfers": 4, "internal/console/rates": 2, "internal/console/ui": 1,
	"internal/errs": 1, "fault": 0, // fault is public: the errors
}

// outside lists packages that are not part of the product: programs that show
// its use, and what only tests import. The product cannot import them.
var outside = []string{"internal/device/fakegpu", "internal/nvtx/fakeprofiler",
	"internal/meters/fakemachine",
	"internal/device/devicetest", "internal/vfs/vfstest", "test/closing",
	"test/nobody", "internal/store/storetest", "internal/store/model",
	"examples/load", "examples/objects", "test/gpu", "test/s3suite", "test/clients", "test/server", "test/setup",
	"test/routes", "test/peers/samples", "bench/s3", "bench/express", "bench/misses", "bench/door/objects",
	"test/house", "test/count", "test/words", "test/effort", "test/built", "test/powercut", "test/holder",
	"test/s3suite/player", "test/upstreams", "test/upstreams/programs", "test/upstreams/serve", "test/upstreams/liar",
	"test/console/started", "test/console/attacks", "test/console/flow", "test/issuer", "test/issuer/serve",
	"test/sts", "test/transit", "test/gate"}

// storeParts are the packages of the store on disk that open its metadata or its files.
const storeParts = "internal/store/metafile internal/store/metadb internal/store/metascan internal/store/fence " +
	"internal/store/filecopy internal/store/quarantine internal/store/check internal/store/backup internal/store/salvage"

// doors are passed by their owners alone, with the reason. A door also guards the packages below it, unless a longer
// path has a door of its own. Several owners are separated by spaces; a/... stands for a and the packages below it.
var doors = map[string]struct{ by, why string }{
	"internal/device/host": {"internal/device/open",
		"everyone else speaks device and cannot know what is behind it"},
	"internal/device/cuda": {"internal/device/open",
		"everyone else speaks device and cannot know what is behind it"},
	"internal/device/nvml": {"internal/device/open",
		"everyone else speaks device and cannot know what is behind it"},
	"internal/device/cufile": {"internal/device/open",
		"everyone else speaks device and cannot know what is behind it"},
	"internal/device/dcgm": {"internal/device/open",
		"everyone else speaks device and cannot know what is behind it"},
	"github.com/cilium/ebpf":                  {"internal/blocklatency", "programs in the kernel are loaded in one place"},
	"github.com/ebitengine/purego":            {"internal/dl", "native libraries are called through one layer"},
	"github.com/spf13/cobra":                  {"internal/cli", "commands are a face, nothing below knows them"},
	"charm.land/bubbletea/v2":                 {"internal/top", "one view draws whole screens"},
	"golang.org/x/term":                       {"internal/cli", "only a face has a terminal"},
	"github.com/HdrHistogram/hdrhistogram-go": {"internal/bench", "latencies are gathered in one place"},
	"github.com/minio/crc64nvme":              {"internal/checksum", "what a block's sum is, is said in one place"},
	"internal/store/disk": {"internal/node",
		"everyone else speaks object and cannot know what is behind it"},
	"internal/store/datafile": {"internal/store/disk " + storeParts,
		"files of content have one owner"},
	"internal/s3api": {"internal/node", "the front end can be replaced"},
	"internal/s3api/xmldoc": {"internal/s3api/... internal/lifecycle internal/inventory",
		"documents of S3 are checked in one place"},
	"github.com/cockroachdb/pebble/v2": {"internal/store/disk internal/store/cachefile " + storeParts,
		"metadata has one owner"},
	"github.com/prometheus/client_golang/prometheus": {"internal/node", "those below report events and snapshots"},
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4": {"internal/store/s3",
		"requests to other servers are signed in one place"},
	"github.com/hashicorp/memberlist": {"internal/cluster", "who is a member is decided in one place"},
	"github.com/nats-io/nats.go":      {"internal/notify", "other programs are told of changes in one place"},
	"github.com/twmb/franz-go":        {"internal/notify", "other programs are told of changes in one place"},
	"github.com/go-jose/go-jose/v4": {"internal/oidc",
		"tokens are verified in one place"},
	"go.yaml.in/yaml/v3": {"internal/config", "there is one reader of configuration"},
	"C":                  {"capi", "cgo is for the C ABI alone"},

	"golang.org/x/text/unicode/norm": {"internal/data/tokens", "only tokenizers change the characters of a text"},
	"github.com/rivo/uniseg":         {"internal/data/tokens", "only tokenizers change the characters of a text"},

	"github.com/versity/versitygw": {"internal/s3api/...", "the front end can be replaced"},
	"github.com/gofiber/fiber/v3":  {"internal/s3api/...", "the front end can be replaced"},
	"github.com/valyala/fasthttp":  {"internal/s3api/...", "the front end can be replaced"},
	"github.com/cockroachdb/pebble/v2/vfs": {"internal/store/disk internal/store/datafile internal/store/layout " +
		"internal/store/witness internal/store/cachefile " + storeParts, "file systems that fail on demand test them"},
	"github.com/minio/md5-simd": {"internal/store/datafile", "ETags are made where content is written"},
	"github.com/spf13/pflag":    {"internal/cli", "commands are a face, nothing below knows them"},
	"github.com/aws/aws-sdk-go-v2/aws": {"internal/store/s3 internal/place",
		"requests to other servers are signed in one place, and their keys are found in one place"},
	"github.com/aws/aws-sdk-go-v2/config":      {"internal/place", "keys of other servers are found in one place"},
	"github.com/aws/aws-sdk-go-v2/credentials": {"internal/place", "keys of other servers are found in one place"},

	"github.com/aws/aws-sdk-go-v2/service/s3": {"internal/s3api/...", "versitygw speaks in these types"},
}

// everyone lists modules that every package may import, each with the reason.
var everyone = map[string]string{
	"golang.org/x/sys": "system calls are everybody's: cachestat, statx, preadv2, io_uring",
}

// testModules lists modules that only tests import, each with the reason.
var testModules = map[string]string{
	"github.com/minio/minio-go/v7":       "a client of S3 that is not ours",
	"github.com/nats-io/nats-server/v2":  "a real NATS server to which tests publish events",
	"github.com/twmb/franz-go/pkg/kfake": "a server of the Kafka protocol to which tests publish events",
}

// linkedModules lists the modules that the shared library may link. It runs in other people's processes.
var linkedModules = map[string]string{
	"github.com/ebitengine/purego":          "native libraries at run time",
	"github.com/minio/crc64nvme":            "sums of blocks",
	"github.com/klauspost/cpuid/v2":         "crc64nvme asks it what the processor can do",
	"github.com/aws/aws-sdk-go-v2/aws":      "the signer of requests, without any service",
	"github.com/aws/aws-sdk-go-v2/internal": "the signer uses it",
	"github.com/aws/smithy-go":              "the signer uses it",
	"golang.org/x/sys":                      "system calls",
}

// notLinked lists what the shared library must not link: faces, the server and what makes files to measure with.
var notLinked = []string{"internal/cli", "internal/synth", "internal/bench", "internal/node", "internal/s3api",
	"internal/iam",
	"internal/config", "internal/gpudirect/server", "internal/store", "internal/cluster"}

// stillLinked lists the exceptions to notLinked: the client of other people's S3.
var stillLinked = []string{"internal/store/s3"}

// theHouse reads the repository and adds the tables.
func theHouse(t *testing.T) house.House {
	t.Helper()
	h, err := house.Load(".", "./capi")
	if err != nil {
		t.Fatal(err)
	}
	h.Doors = map[string]house.Door{}
	for path, d := range doors {
		h.Doors[path] = house.Door{By: d.by, Why: d.why}
	}
	h.Floors, h.Outside, h.Everyone, h.TestModules = floors, outside, everyone, testModules
	h.LinkedModules, h.NotLinked, h.StillLinked = linkedModules, notLinked, stillLinked
	return h
}

// TestHouse holds the repository against each rule of the house.
func TestHouse(t *testing.T) {
	effort.SingleThreaded(t)
	h := theHouse(t)
	if len(h.Packages) < 40 || len(h.Linked) < 40 {
		t.Fatalf("%d packages, %d linked: the lists are not whole", len(h.Packages), len(h.Linked))
	}
	for _, rule := range house.Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			for _, line := range rule.Broken(h) {
				t.Error(line)
			}
		})
	}
}
