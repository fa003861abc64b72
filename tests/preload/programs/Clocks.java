// SPDX-License-Identifier: MIT

/** Reads the two clocks of Java, and prints what it has found and what a read costs. */
public final class Clocks {
    private static final int READS = 2_000_000;

    public static void main(String[] arguments) {
        int back = 0;
        long last = System.nanoTime();
        for (int i = 0; i < READS; i++) {
            final long now = System.nanoTime();
            if (now < last) {
                back++;
            }
            last = now;
        }
        double cost = Double.MAX_VALUE;
        for (int round = 0; round < 20; round++) {
            final long start = System.nanoTime();
            for (int i = 0; i < READS / 20; i++) {
                last = System.nanoTime();
            }
            cost = Math.min(cost, (double) (last - start) / (READS / 20));
        }
        System.out.println("back " + back);
        System.out.println("millis " + System.currentTimeMillis());
        System.out.println("cost_ns " + cost);
    }
}
