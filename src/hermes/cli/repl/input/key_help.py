"""The keys of the interactive terminal, explained."""

KEY_HELP = """\
Enter            send; while the agent works: steer it (change that with /busy)
Tab              complete; while the agent works: queue the message
Shift-Tab        plan mode on or off (nothing is changed until you approve the plan)
Shift-Enter      insert a new line (also Alt-Enter, Ctrl-J, or \\ before Enter)
Esc, Ctrl-C      interrupt; Ctrl-C twice quits
Up, Down         earlier messages; Up in an empty prompt edits the queued message
Ctrl-O           show the last tool output; again: all of the turn
Ctrl-T           open the transcript in your pager, with reasoning and tool output
Ctrl-V           attach the image in the clipboard
Ctrl-X Ctrl-E    write in your editor
Ctrl-R           search earlier messages
Ctrl-L           clear the screen
Ctrl-Z           suspend (fg returns)
Ctrl-D           quit, in an empty prompt (while the agent works: twice)
/ commands   @ files and folders   ! run a command yourself
# add to the memory   // a message that begins with /"""
