;; Reads behind its memory.
;; want: TrapError: memory
(func $bad (drop (i32.load (i32.const -4))))
