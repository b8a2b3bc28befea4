package cli

import "github.com/spf13/cobra"

func (a *App) doctorCommand() *cobra.Command { return &cobra.Command{Use: "doctor"} }
func (a *App) demoCommand() *cobra.Command   { return &cobra.Command{Use: "demo"} }
