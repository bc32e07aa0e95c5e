// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/checksum"
)

const (
	// MetadataName is the name of PyTorch's metadata, whose presence makes a checkpoint complete.
	MetadataName = ".metadata"

	manifestPrefix = "checkpoint-"
	manifestSuffix = ".nebulaio.json"
	dataSuffix     = ".distcp"
	indexSuffix    = ".safetensors.index.json"
	tensorSuffix   = ".safetensors"
	stepPrefix     = "step-"
	// prunedSuffix ends the names of directories that a prune removes.
	prunedSuffix = ".nebulaio.pruned"

	// mostName is the longest name of a file whose checksums fit beside it, in bytes.
	mostName = 211
	// mostStepDigits is the largest number of digits of a step.
	mostStepDigits = 18
)

var (
	idPattern = regexp.MustCompile(`^[0-9a-f]{16}$`)
	// dataPattern matches the data files of our writer, which have an id, and of PyTorch's, which have none.
	dataPattern = regexp.MustCompile(`^__([0-9]{1,9})_([0-9]{1,9})(?:_([0-9a-f]{16}))?\.distcp$`)
	// rankPattern matches the metadata of a rank that saved without the others.
	rankPattern = regexp.MustCompile(`^__[0-9]{1,9}\.metadata$`)
	// markPattern matches the mark of a save of .safetensors files that is running.
	markPattern = regexp.MustCompile(`^checkpoint-[0-9a-f]{16}\.partial$`)
	// tempPattern matches temporary files of data files, manifests and metadata.
	tempPattern = regexp.MustCompile(`^\..+\.[0-9a-f]{16}\.nebulaio\.tmp$`)
)

// ManifestName returns the name of the manifest of the save with this id.
func ManifestName(id string) string { return manifestPrefix + id + manifestSuffix }

// manifestID returns the id in the name of a manifest. The result ok is false for any other name.
func manifestID(name string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(name, manifestPrefix)
	if !ok {
		return "", false
	}
	id, ok = strings.CutSuffix(rest, manifestSuffix)
	return id, ok && idPattern.MatchString(id)
}

// dataID splits the name of a data file into its rank and its id. PyTorch's files have no id.
func dataID(name string) (rank int, id string, ok bool) {
	m := dataPattern.FindStringSubmatch(name)
	if m == nil {
		return 0, "", false
	}
	rank, err := strconv.Atoi(m[1])
	return rank, m[3], err == nil
}

// StepName returns the name of the directory of a step in a root of checkpoints.
func StepName(step int64) string { return fmt.Sprintf("%s%010d", stepPrefix, step) }

// stepOf returns the step in the name of a directory. The result ok is false for any other name.
func stepOf(name string) (step int64, ok bool) {
	digits, ok := strings.CutPrefix(name, stepPrefix)
	if !ok || digits == "" || len(digits) > mostStepDigits || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	step, err := strconv.ParseInt(digits, 10, 64)
	return step, err == nil
}

// isTemporary reports whether a save of ours made a file and has not finished it.
func isTemporary(name string) bool { return tempPattern.MatchString(name) }

// isPruned reports whether a prune has begun to remove a directory with this name.
func isPruned(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, prunedSuffix)
}

// checkedFile returns the name of the file whose checksums are in a file with this name. The result is "" if the name
// is not that of checksums.
func checkedFile(name string) string {
	if checksum.IsPending(name) {
		name = name[:strings.LastIndexByte(name, '.')]
	}
	file, ok := strings.CutSuffix(name, checksum.Suffix)
	if !ok {
		return ""
	}
	return file
}

// ofSave reports whether a save of ours or of PyTorch writes files with this name beside .metadata. Only such files are
// removed when a new checkpoint replaces an older one in its directory.
func ofSave(name string) bool {
	if file := checkedFile(name); file != "" {
		name = file
	}
	if _, ok := manifestID(name); ok {
		return true
	}
	_, _, ok := dataID(name)
	return ok
}

// badName returns why a file of a checkpoint cannot have this name, or "" if it can.
func badName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > mostName:
		return fmt.Sprintf("has %d bytes, expected at most %d", len(name), mostName)
	case strings.ContainsAny(name, "/\\\x00"):
		return "contains a slash or a zero byte"
	case name == "." || name == ".." || name == MetadataName:
		return "is not a name for a data file"
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }):
		return "contains control characters, or is not UTF-8"
	case strings.HasPrefix(name, ".") || checkedFile(name) != "" || strings.HasSuffix(name, manifestSuffix):
		return "is a name that is not used for data files"
	}
	return ""
}

// Formats of the data files in a manifest.
const (
	manifestFormat  = "torch-dcp"
	manifestTensors = "safetensors"
)

// pruneMark marks a prefix of .safetensors objects that a prune removes. Without .metadata and without a rename,
// nothing else would show that some of the objects are gone.
const pruneMark = "checkpoint-0000000000000000.partial"

// Formats of checkpoints in listings.
const (
	FormatNebulaIO    = "nebulaio"    // data files of PyTorch's format with a manifest
	FormatTorch       = "torch"       // written by PyTorch itself, with .metadata
	FormatSafetensors = "safetensors" // one .safetensors file or several, as Hugging Face names them
	FormatTorchFile   = "torch-file"  // one file of torch.save
)
