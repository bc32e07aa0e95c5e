// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// examples returns example lines by command path. A test checks that every
// command has one and that the parser accepts each line.
func examples() map[string]string {
	return map[string]string{
		"nebulaio": `  nebulaio generate --shapes tiny --out tiny.safetensors
  nebulaio load tiny.safetensors
  nebulaio server --data ./data`,

		"nebulaio load": `  nebulaio load model.safetensors
  nebulaio load ./llama --device cuda:0 --repeat 3
  nebulaio load model.safetensors --drop-cache --cache bypass
  nebulaio load s3://models/llama --endpoint http://localhost:9000`,
		"nebulaio save": `  nebulaio save ./llama merged.safetensors
  nebulaio save model.safetensors s3://models/model.safetensors`,
		"nebulaio inspect": `  nebulaio inspect model.safetensors
  nebulaio inspect ./llama --checksum
  nebulaio inspect model.safetensors --json
  nebulaio inspect ./shards --sample 7
  nebulaio inspect s3://training/images --verify --skip-bad`,
		"nebulaio index": `  nebulaio index ./shards
  nebulaio index ./shards --check
  nebulaio index s3://training/train-{0000..0099}.tar --json`,
		"nebulaio devices": `  nebulaio devices
  nebulaio devices --devices require`,
		"nebulaio top": `  nebulaio top
  nebulaio top --once
  nebulaio top --json --samples 10 --interval 500ms
  nebulaio top --record slow.jsonl
  nebulaio top --replay slow.jsonl --speed 4`,
		"nebulaio doctor": `  nebulaio doctor /data/models
  nebulaio doctor /data/models --fix-script
  nebulaio doctor --root capture.tar`,
		"nebulaio diagnose": `  nebulaio diagnose -- python train.py --epochs 1
  nebulaio diagnose --json -- torchrun --nproc-per-node 8 train.py`,
		"nebulaio doctor capture": `  nebulaio doctor capture capture.tar /data/models`,
		"nebulaio doctor prove":   `  nebulaio doctor prove model.safetensors --gpu 0`,
		"nebulaio generate": `  nebulaio generate --shapes qwen3-0.6b --out qwen3.safetensors
  nebulaio generate --shapes qwen2.5-7b --shard-size 4GiB --out ./qwen2.5
  nebulaio generate --list`,
		"nebulaio pack": `  nebulaio pack ./images ./packed --format tar
  nebulaio pack ./images s3://data/packed --format mds --shuffle 7
  nebulaio pack ./tokens ./megatron --format bin --dtype uint16`,
		"nebulaio unpack": `  nebulaio unpack ./packed ./images
  nebulaio unpack s3://data/packed ./images --json`,

		"nebulaio ls": `  nebulaio ls
  nebulaio ls s3://models/llama/ --human
  nebulaio ls s3://production@models --recursive --json`,
		"nebulaio rm": `  nebulaio rm s3://models/old.safetensors
  nebulaio rm s3://training/run --recursive --exclude *.pt --dry-run`,
		"nebulaio migrate": `  nebulaio migrate http://minio:9000 --source-access-key minioadmin
  nebulaio migrate http://minio:9000 photos logs --dry-run
  nebulaio migrate https://minio.example.com --source-profile old --json`,
		"nebulaio mb": `  nebulaio mb s3://models`,
		"nebulaio rb": `  nebulaio rb s3://scratch
  nebulaio rb s3://scratch --force`,
		"nebulaio cat": `  nebulaio cat s3://models/llama/config.json
  nebulaio cat s3://models/llama/model.safetensors --range 0-7`,
		"nebulaio du": `  nebulaio du s3://models --depth 1 --human
  nebulaio du ./data --json`,
		"nebulaio warm": `  nebulaio warm s3://models/llama --to /nvme/models
  nebulaio warm s3://models/llama --to http://node7:9000 --pin 24h`,
		"nebulaio verify": `  nebulaio verify ./llama s3://models/llama
  nebulaio verify s3://models s3://backup@models --json`,
		"nebulaio cp": `  nebulaio cp s3://models/llama/model.safetensors ./llama/
  nebulaio cp --recursive ./run s3://training/run --exclude '*.tmp'
  nebulaio cp s3://models/big.bin . --limit-rate 100MiB --json`,
		"nebulaio sync": `  nebulaio sync s3://models/llama ./llama
  nebulaio sync ./llama s3://models/llama --delete --dry-run
  nebulaio sync s3://a/data s3://b/data --source-profile old --checksum`,

		"nebulaio checkpoint": `  nebulaio checkpoint list ./run
  nebulaio checkpoint prune ./run --keep-last 3`,
		"nebulaio checkpoint list": `  nebulaio checkpoint list ./run
  nebulaio checkpoint list s3://training/run --all --json`,
		"nebulaio checkpoint verify": `  nebulaio checkpoint verify ./run/step-0000000100
  nebulaio checkpoint verify s3://training/run/step-0000000100
  nebulaio checkpoint verify model.pt`,
		"nebulaio checkpoint prune": `  nebulaio checkpoint prune ./run --keep-last 3 --dry-run
  nebulaio checkpoint prune s3://training/run --keep-last 3 --keep-every 1000`,

		"nebulaio bench": `  nebulaio bench ceilings /data
  nebulaio bench read /data --to engine
  nebulaio bench all /data --html report.html`,
		"nebulaio bench read": `  nebulaio bench read /data --time 10s
  nebulaio bench read /data --to pinned --route direct --workers 8
  nebulaio bench read model.safetensors --to engine --cache cold`,
		"nebulaio bench write": `  nebulaio bench write /data --size 4GiB
  nebulaio bench write /data --from pinned --workers 8`,
		"nebulaio bench all": `  nebulaio bench all /data
  nebulaio bench all /data --html report.html --out results.json`,
		"nebulaio bench sweep": `  nebulaio bench sweep block-size /data
  nebulaio bench sweep all /data --time 5s --html sweeps.html`,
		"nebulaio bench train": `  nebulaio bench train /data
  nebulaio bench train /data --workload unet3d --accelerator h100
  nebulaio bench train /data --batch 64 --step 10ms --steps 500`,
		"nebulaio bench ceilings": `  nebulaio bench ceilings /data
  nebulaio bench ceilings --rounds 9`,
		"nebulaio bench compare": `  nebulaio bench compare before.json after.json
  nebulaio bench compare before.json after.json --max-regression 5%`,
		"nebulaio bench report": `  nebulaio bench report results.json
  nebulaio bench report results.json --html report.html`,

		"nebulaio server": `  nebulaio server --data ./data
  nebulaio server --config /etc/nebulaio/nebulaio.yaml
  nebulaio server --address 127.0.0.1:9000 --tls-generate`,
		"nebulaio config": `  nebulaio config
  nebulaio config --config /etc/nebulaio/nebulaio.yaml --json`,
		"nebulaio encryption": `  nebulaio encryption new-key ./master.key
  nebulaio encryption keys --data ./data`,
		"nebulaio encryption new-key": `  nebulaio encryption new-key ./master.key`,
		"nebulaio encryption keys":    `  nebulaio encryption keys --data ./data`,
		"nebulaio encryption create":  `  nebulaio encryption create payroll --data ./data`,
		"nebulaio encryption rotate":  `  nebulaio encryption rotate payroll --data ./data`,
		"nebulaio encryption rewrap":  `  nebulaio encryption rewrap --data ./data`,
		"nebulaio user": `  nebulaio user add alice --data ./data
  nebulaio user list --data ./data`,
		"nebulaio user add": `  nebulaio user add alice --data ./data
  nebulaio user add bob --role userplus --secret - < secret.txt`,
		"nebulaio user update": `  nebulaio user update alice --generate
  nebulaio user update alice --role admin`,
		"nebulaio user list":   `  nebulaio user list --data ./data`,
		"nebulaio user remove": `  nebulaio user remove alice --data ./data`,
		"nebulaio user grant": `  nebulaio user grant alice models --data ./data
  nebulaio user grant alice models --read --prefix llama/ --data ./data`,
		"nebulaio user revoke": `  nebulaio user revoke alice models --data ./data`,
		"nebulaio user show":   `  nebulaio user show alice --data ./data`,
		"nebulaio user import": `  nebulaio user import minio-iam-info.zip --dry-run --data ./data
  nebulaio user import minio-iam-info.zip --data ./data`,
		"nebulaio user key": `  nebulaio user key add alice --data ./data
  nebulaio user key list alice --data ./data`,
		"nebulaio user key add": `  nebulaio user key add alice --expires 720h --data ./data
  nebulaio user key add alice --policy nightly.json --description backup`,
		"nebulaio user key update": `  nebulaio user key update backup --generate --data ./data`,
		"nebulaio user key list":   `  nebulaio user key list alice --data ./data`,
		"nebulaio user key remove": `  nebulaio user key remove backup --data ./data`,

		"nebulaio group": `  nebulaio group add research alice bob --data ./data
  nebulaio policy attach readonly --group research --data ./data`,
		"nebulaio group add":    `  nebulaio group add research alice bob --data ./data`,
		"nebulaio group drop":   `  nebulaio group drop research bob --data ./data`,
		"nebulaio group list":   `  nebulaio group list --data ./data`,
		"nebulaio group show":   `  nebulaio group show research --data ./data`,
		"nebulaio group remove": `  nebulaio group remove research --data ./data`,

		"nebulaio policy": `  nebulaio policy set models models.json --data ./data
  nebulaio policy attach models --user alice --data ./data
  nebulaio policy test alice s3:GetObject models/llama --data ./data`,
		"nebulaio policy set":    `  nebulaio policy set models models.json --data ./data`,
		"nebulaio policy show":   `  nebulaio policy show readonly --data ./data`,
		"nebulaio policy list":   `  nebulaio policy list --data ./data`,
		"nebulaio policy remove": `  nebulaio policy remove models --data ./data`,
		"nebulaio policy attach": `  nebulaio policy attach readonly --user alice --data ./data
  nebulaio policy attach models readonly --group research --data ./data`,
		"nebulaio policy detach": `  nebulaio policy detach readonly --user alice --data ./data`,
		"nebulaio policy test": `  nebulaio policy test alice s3:GetObject models/llama --data ./data
  nebulaio policy test alice s3:ListBucket models --condition s3:prefix=a/`,

		"nebulaio store": `  nebulaio store stats --data ./data
  nebulaio store backup /backup/today --data ./data`,
		"nebulaio store check": `  nebulaio store check --data ./data
  nebulaio store check --data ./data --content
  nebulaio store check --data ./data --repair`,
		"nebulaio store scrub": `  nebulaio store scrub --data ./data
  nebulaio store scrub --data ./data --rate 100MiB`,
		"nebulaio store stats": `  nebulaio store stats --data ./data`,
		"nebulaio store backup": `  nebulaio store backup /backup/today --data ./data
  nebulaio store backup /backup/today --data ./data --verify`,
		"nebulaio store restore": `  nebulaio store restore /backup/today --data ./data`,
		"nebulaio store salvage": `  nebulaio store salvage ./data --to ./saved`,
		"nebulaio store quarantine": `  nebulaio store quarantine list --data ./data
  nebulaio store quarantine restore NAME --data ./data`,
		"nebulaio store quarantine list":    `  nebulaio store quarantine list --data ./data`,
		"nebulaio store quarantine restore": `  nebulaio store quarantine restore NAME --data ./data`,

		"nebulaio cache":        `  nebulaio cache ls models --data ./data`,
		"nebulaio cache ls":     `  nebulaio cache ls models/llama --data ./data`,
		"nebulaio cache stat":   `  nebulaio cache stat --data ./data --json`,
		"nebulaio cache verify": `  nebulaio cache verify models --data ./data`,
		"nebulaio cache pin":    `  nebulaio cache pin 'models/llama/*' --for 24h --data ./data`,
		"nebulaio cache unpin":  `  nebulaio cache unpin 'models/llama/*' --data ./data`,
		"nebulaio cache evict":  `  nebulaio cache evict models/old --data ./data`,

		"nebulaio lifecycle": `  nebulaio lifecycle status --data ./data`,
		"nebulaio quota":     `  nebulaio quota list --data ./data`,
		"nebulaio quota set": `  nebulaio quota set models --bytes 10GiB --objects 1000 --data ./data
  nebulaio quota set --user alice --bytes 1TiB --data ./data`,
		"nebulaio quota remove":     `  nebulaio quota remove models --data ./data`,
		"nebulaio inventory":        `  nebulaio inventory status --data ./data`,
		"nebulaio inventory status": `  nebulaio inventory status --data ./data --json`,
		"nebulaio inventory run":    `  nebulaio inventory run models all --data ./data`,
		"nebulaio quota list":       `  nebulaio quota list --data ./data --json`,
		"nebulaio lifecycle status": `  nebulaio lifecycle status --data ./data --json`,
		"nebulaio lifecycle run": `  nebulaio lifecycle run --data ./data --dry-run
  nebulaio lifecycle run logs --data ./data`,
		"nebulaio events": `  nebulaio events status --data ./data`,
		"nebulaio events status": `  nebulaio events status --data ./data
  nebulaio events status --data ./data --json`,
		"nebulaio replication": `  nebulaio replication status --data ./data`,
		"nebulaio replication status": `  nebulaio replication status --data ./data
  nebulaio replication status photos --data ./data --json`,
		"nebulaio user session": `  nebulaio user session list --data ./data`,
		"nebulaio user session list": `  nebulaio user session list --data ./data
  nebulaio user session list alice --data ./data --json`,
		"nebulaio user session revoke": `  nebulaio user session revoke alice --data ./data
  nebulaio user session revoke alice --access-key ASIAEXAMPLE --data ./data`,
		"nebulaio cluster":        `  nebulaio cluster status --data ./data`,
		"nebulaio cluster status": `  nebulaio cluster status --data ./data --json`,
		"nebulaio cluster key":    `  nebulaio cluster key --out cluster.key`,

		"nebulaio gpudirect":        `  nebulaio gpudirect status --data ./data`,
		"nebulaio gpudirect status": `  nebulaio gpudirect status --data ./data --json`,
		"nebulaio process": `  nebulaio process status 1234
  nebulaio process suspend 1234
  nebulaio process resume 1234`,
		"nebulaio process suspend": `  nebulaio process suspend 1234
  nebulaio process suspend 1234 --timeout 5m --json`,
		"nebulaio process resume": `  nebulaio process resume 1234
  nebulaio process resume 1234 --device-map cuda:0=cuda:1`,
		"nebulaio process status": `  nebulaio process status 1234 --json`,
		"nebulaio process dump": `  nebulaio process dump 1234 /dumps/job
  nebulaio process dump 1234 s3://dumps/job --leave-running
  nebulaio process dump 1234 /dumps/job --shell-job -- --ext-unix-sk`,
		"nebulaio process restore": `  nebulaio process restore /dumps/job
  nebulaio process restore s3://dumps/job --json`,
		"nebulaio version": `  nebulaio version --json`,
		"nebulaio help":    `  nebulaio help bench read`,
	}
}

// addExamples sets the examples of each command that has none of its own.
func addExamples(cmd *cobra.Command, all map[string]string) {
	if cmd.Example == "" {
		cmd.Example = all[cmd.CommandPath()]
	}
	for _, c := range cmd.Commands() {
		addExamples(c, all)
	}
}
