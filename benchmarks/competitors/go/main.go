// Alters and describes client quotas with franz-go's kadm, one job for each line of standard input.
// The jobs and their results are those of benchmarks/competitors/jobs.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type job struct {
	Do       string              `json:"do"`
	Entities []map[string]string `json:"entities"`
	Values   map[string]float64  `json:"values"`
}

type result struct {
	Ms       float64 `json:"ms"`
	Entities int     `json:"entities"`
	Error    string  `json:"error,omitempty"`
}

func main() {
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	results := json.NewEncoder(os.Stdout)
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		done, err := run(admin, line)
		if err != nil {
			done = result{Error: err.Error()}
		}
		if err := results.Encode(done); err != nil {
			return
		}
	}
}

func run(admin *kadm.Client, line []byte) (result, error) {
	var wanted job
	if err := json.Unmarshal(line, &wanted); err != nil {
		return result{}, err
	}
	if wanted.Do == "describe" {
		return describe(admin)
	}
	return alter(admin, entries(wanted))
}

func entries(wanted job) []kadm.AlterClientQuotaEntry {
	var ops []kadm.AlterClientQuotaOp
	for key, value := range wanted.Values {
		ops = append(ops, kadm.AlterClientQuotaOp{Key: key, Value: value})
	}
	all := make([]kadm.AlterClientQuotaEntry, 0, len(wanted.Entities))
	for _, names := range wanted.Entities {
		var entity kadm.ClientQuotaEntity
		for kind, name := range names {
			entity = append(entity, kadm.ClientQuotaEntityComponent{Type: kind, Name: &name})
		}
		all = append(all, kadm.AlterClientQuotaEntry{Entity: entity, Ops: ops})
	}
	return all
}

func alter(admin *kadm.Client, all []kadm.AlterClientQuotaEntry) (result, error) {
	begun := time.Now()
	altered, err := admin.AlterClientQuotas(context.Background(), all)
	took := time.Since(begun)
	if err != nil {
		return result{}, err
	}
	for _, one := range altered {
		if one.Err != nil {
			return result{}, fmt.Errorf("%v: %w: %s", one.Entity, one.Err, one.ErrMessage)
		}
	}
	return result{Ms: milliseconds(took), Entities: len(altered)}, nil
}

func describe(admin *kadm.Client) (result, error) {
	begun := time.Now()
	described, err := admin.DescribeClientQuotas(context.Background(), false, nil)
	took := time.Since(begun)
	if err != nil {
		return result{}, err
	}
	return result{Ms: milliseconds(took), Entities: len(described)}, nil
}

func milliseconds(took time.Duration) float64 {
	return float64(took.Nanoseconds()) / 1e6
}
