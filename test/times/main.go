// SPDX-License-Identifier: Apache-2.0

// Command times says where the time of a test run went.
//
//	times run FILE PROGRAM [ARG...]   runs a test program (go test -exec) and adds what it took to FILE
//	times report [flags]              prints the slowest packages and tests of a run, as Markdown
package main

import (
	"fmt"
	"os"
)

const usage = `usage: times run FILE PROGRAM [ARG...]
       times report -json FILE[,FILE...] [-processor FILE] [-actions FILE] [-most N]`

func main() {
	err := fmt.Errorf("%s", usage)
	code := 2
	if len(os.Args) > 3 && os.Args[1] == "run" {
		os.Exit(run(os.Args[2], os.Args[3:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "report" {
		code = 1
		err = report(os.Args[2:], os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(code)
	}
}
